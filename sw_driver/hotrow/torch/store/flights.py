"""Batches on their way through a cache, and what of the card's numbers each group sees."""

from dataclasses import dataclass, field

import numpy as np
import torch

from ...errors import Error
from ...results import RowList
from ..memory.rows import Rows
from ..memory.slots import SlotStorage
from .base import Open, Request

_FIRST_AREA = 64  # rows without a slot that a group has room for at first


@dataclass(eq=False)
class Part:
    """What a batch does with one group.

    Members
    -------
    slots : int64[n]
        Of each lookup; the group's slots + k for the k-th row without one.
    fills, leaving : int64[f], int64[v]
        Flat rows that come, and those that leave and were trained.
    fill_slots, leaving_slots : int64[f], int64[v]
    bypassed : int
        Rows without a slot.
    brought, taken_back : Rows or None
        Their contents on the way, in host memory.
    carried : Rows or None
        Those that come, in the memory of the slots.
    left, arrived : mark
        Of the memory of the slots: behind reading those that leave, and writing those that come.
    area : int64[bypassed]
        Places of the rows without a slot.
    at : int64[n]
        Where each lookup's row is, once all rows are there.
    there : int64[n]
        The same, in the memory of the slots.
    """

    segment: object
    slots: torch.Tensor
    fills: torch.Tensor
    fill_slots: torch.Tensor
    leaving: torch.Tensor
    leaving_slots: torch.Tensor
    bypassed: int
    brought: Rows | None = None
    taken_back: Rows | None = None
    carried: Rows | None = None
    left: object = None
    arrived: object = None
    area: torch.Tensor | None = None
    at: torch.Tensor | None = None
    there: torch.Tensor | None = None

    def places(self, slots, first):
        """Places in the storage of slots int64[k] and rows without one, which begin at `first`."""
        if not self.bypassed:
            return slots
        area = self.area[(slots - first).clamp(0, self.bypassed - 1)]
        return torch.where(slots < first, slots, area)

    def find(self, flat):
        """Place of each flat row int64[u], -1 of one that the batch does not look up."""
        rows, inverse = torch.unique(self.segment.flat, return_inverse=True)
        at = torch.empty_like(rows)
        at[inverse] = self.at
        found = torch.searchsorted(rows, flat).clamp_(max=len(rows) - 1)
        return torch.where(rows[found] == flat, at[found], -1)


@dataclass(eq=False)
class InFlight:
    """A batch between `prefetch` and `finish`.

    Members
    -------
    marked_at : int
        First batch that was planned after this one's rows were marked.
    marked : int
        Batches whose rows were marked before this one was planned.
    wait_for : int
        Batch whose rows without a slot must be back before this one's rows are read, or -1.
    """

    request: Request
    batch: object
    marked_at: int | None = None
    marked: int = 0
    wait_for: int = -1
    parts: list = field(default_factory=list)
    open: Open = field(default_factory=Open)


class SlotNumbers:
    """Registers tables with a device, and turns its numbers of tables and slots into a group's.

    Every group has a part of the directory, and a storage for its slots.

    Parameters
    ----------
    groups : sequence of TableGroup
    device : Device
    share : int
        The groups' slots are one of so many parts of the directory, a power of two.
    memory : SlotMemory

    Members
    -------
    registered : dict of int to Table
        By number of the collection's table.
    storages : list of SlotStorage
        Of each group.
    slots : int
        Of all groups together.
    names : list of str
        Of the tables, by the device's numbers.

    Raises
    ------
    Error
        The device has tables; its directory has not so many parts.
    """

    def __init__(self, groups, device, share, memory):
        if device.tables:
            raise Error(f"the device has tables already ({len(device.tables)}): open one for the "
                        f"collection alone, or unregister them")
        geometry, parts = device.geometry, share
        while parts < share * len(groups):
            parts *= 2
        if parts > geometry.directory_partitions:
            raise Error(f"{len(groups)} kinds of tables, {share} parts of the directory: this "
                        f"card's directory has {geometry.directory_partitions} parts")
        self.groups, self._slots = tuple(groups), geometry.slots
        self._per_choice = geometry.slots // geometry.directory_choices
        self._part = self._per_choice // parts
        self.storages, self.registered, where = [], {}, []
        for at, group in enumerate(groups):
            for local, number in enumerate(group.numbers):
                array, side = group.tables.carried(local)
                self.registered[number] = device.register_table(
                    array, name=group.configs[local].name, state=side, partition=(at, parts))
                where.append((at, local))
            self.storages.append(SlotStorage(geometry.slots // parts, _FIRST_AREA, group.kind,
                                             len(group.tables.rows), memory))
        self._where = np.array(where)
        self.names = [group.configs[local].name for group in self.groups
                      for local in range(len(group.numbers))]
        self.slots = sum(storage.slots for storage in self.storages)

    def listed(self, group, flat):
        """Flat rows int64[n] of a group as the device names them: RowList."""
        rows = self.groups[group].tables.locate(flat)
        first = self.registered[self.groups[group].numbers[0]].number
        return RowList(rows.table + np.uint32(first), rows.row)

    def rows_of(self, group, rows):
        """Which of a RowList's rows are a group's, bool[n], and their flat rows."""
        chosen = self._where[rows.table, 0] == group
        local = self._where[rows.table[chosen], 1].astype(np.uint32)
        return chosen, self.groups[group].tables.flat(RowList(local, rows.row[chosen]))

    def local(self, group, slots):
        """Slots int64[n] of a group's part of the directory, from 0 on."""
        choice, within = np.divmod(slots.astype(np.int64), self._per_choice)
        return torch.from_numpy(choice * self._part + within - group * self._part)

    def part(self, segment, placing):
        """What a Placing says about a segment's group: Part."""
        group = segment.group
        first = self.storages[group].slots
        coming, fills = self.rows_of(group, placing.fills)
        going, leaving = self.rows_of(group, placing.evictions)
        fill_slots = placing.fills.slots[coming].astype(np.int64)
        bypassed = np.sort(fill_slots[fill_slots >= self._slots])

        def local(slots):
            places = torch.from_numpy(first + np.searchsorted(bypassed, slots))
            return torch.where(torch.from_numpy(slots < self._slots), self.local(group, slots),
                               places)

        return Part(segment, local(placing.slots[segment.lookups]), fills, local(fill_slots),
                    leaving, local(placing.evictions.slots[going].astype(np.int64)), len(bypassed))
