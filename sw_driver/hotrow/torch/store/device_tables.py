"""The tables of a collection on its device."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

import numpy as np
import torch

from ...contract.errors import Error, RegistrationError
from ...device import Device
from ...kernels.listing import locate_rows
from ...memory.buffer import Array, Buffer
from ...operands.results import RowList
from ...operands.table import Table
from ..features.configs import TableGroup
from ..features.grouping import Segment


class DeviceTables:
    """Registers the groups' tables, on the card where it has memory.

    Parameters
    ----------
    groups : sequence of TableGroup
    device : Device
        Without tables of its own, so that those of a group get consecutive numbers.
    partitions : sequence of (int, int)
        Of each group, as in `Device.register_table`.
    card_only : bool
        Whether a card with memory is to have all of them there.

    Attributes
    ----------
    buffers : list of list of Buffer
        Memory of each group's tables, and of their state.
    registered : dict of int to Table
        By number of the collection's table; empty after `close` of the store.
    table_sets : list of TableSet
        Of each group.
    names : list of str
        Names of the tables, by the device's numbers.
    """

    def __init__(self, groups: Sequence[TableGroup], device: Device,
                 partitions: Sequence[tuple[int, int]], card_only: bool = False) -> None:
        self._device, self.groups, self._card_only = device, tuple(groups), card_only
        self.registered: dict[int, Table] = {}
        self.buffers = [self._register(index) for index in range(len(groups))]
        for group, partition in zip(groups, partitions, strict=True):
            for local, number in enumerate(group.numbers):
                rows = None
                if group.tables.disk is None:
                    array, side = group.tables.device_arrays(local)
                else:  # the device gives slots to the rows, and the host reads them
                    rows = group.tables.cardinalities[local]
                    one = group.kind.allocate(1)
                    array, side = one.array, one.side
                self.registered[number] = device.register_table(
                    array, name=group.configs[local].name, state=side, partition=partition,
                    rows=rows)
        self.table_sets = [device.table_set(self.registered[number] for number in group.numbers)
                           for group in self.groups]
        self.names = [group.configs[local].name for group in self.groups
                      for local in range(len(group.numbers))]

    def _register(self, number: int) -> list[Buffer]:
        """Register the memory of a group's tables, and of their state."""
        group = self.groups[number]
        if group.tables.disk is not None:
            return []
        return [self._placed(array, f"{what} of {_named(group)}") for what, array in (
            ("rows", group.tables.rows.array), ("state", group.tables.rows.side))
            if array is not None]

    def _placed(self, array: Array, name: str) -> Buffer:
        """Register memory of a group, on the card where there is room."""
        try:
            return self._device.register(array, on_card=True, name=name)
        except RegistrationError:
            if self._card_only or not self._device.reaches_host:
                raise
            return self._device.register(array, name=name)

    @property
    def on_card(self) -> list[str]:
        """Names of the tables whose rows or state are on the card."""
        return [group.configs[local].name
                for group, buffers in zip(self.groups, self.buffers, strict=True)
                if any(buffer.on_card for buffer in buffers) for local in range(len(group.numbers))]

    def listed(self, group: int, flat: torch.Tensor, distinct: bool = True) -> RowList:
        """Flat rows int64[n] of a group by the device's tables: RowList."""
        entries = locate_rows(flat, self.groups[group].tables.first,
                              self.registered[self.groups[group].numbers[0]].number)
        return RowList(entries[:, 1], entries[:, 0],
                       tables=self.table_sets[group] if distinct else None,
                       entries=entries.view(np.uint64)[:, 0])

    def listed_lookups(self, segment: Segment) -> RowList:
        """The row of each lookup of a segment, by the device's tables: RowList."""
        keys, first = np.empty(segment.count, np.uint64), 0
        ids = segment.bags.ids[segment.lookups].numpy()
        for table, count in zip(segment.tables, segment.counts, strict=True):
            here = slice(first, first + count)
            np.add(ids[here], np.uint64(self.registered[table].number << 32), out=keys[here],
                   dtype=np.uint64, casting="unsafe")  # of rows, which are not negative
            first += count
        words = keys.view(np.uint32).reshape(-1, 2)
        return RowList(words[:, 1], words[:, 0], tables=self.table_sets[segment.group],
                       entries=keys)

    @property
    def closed(self) -> bool:
        """Whether the device was given back: rows are in the host's memory, and do not train."""
        return not self.registered

    def check_open(self) -> None:
        """Raise Error after `close`."""
        if self.closed:
            raise Error("the collection is closed: it evaluates, and does not train")

    def leave(self) -> Iterator[Callable[[], object]]:
        """The calls that unregister all: an iterator."""
        for table in self.registered.values():
            yield partial(self._device.unregister_table, table)
        for buffer in chain.from_iterable(self.buffers):
            yield partial(self._device.unregister, buffer)


def need_no_tables(device: Device) -> None:
    """Raise Error if a device has tables, whose numbers and slots the collection would take."""
    if device.tables:
        raise Error(f"the device has tables already ({len(device.tables)}): open one for the "
                    f"collection alone, or unregister them")


def _named(group: TableGroup) -> str:
    """The tables of a group in words."""
    first, last = group.configs[0].name, group.configs[-1].name
    return f"table {first!r}" if first == last else f"tables {first!r} to {last!r}"
