"""Reads and writes of tables in host memory through a device, and rows on their way."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...contract.errors import RegistrationError
from ...device import Device
from ...memory.buffer import Buffer, as_array
from ...operands.results import RowList
from ...system.forks import ForkLock
from ...tables.rows import Ticket
from ..features.configs import TableGroup
from ..memory.rows import RowKind, Rows
from ..memory.slot_memory import Event, SlotMemory
from .slot_map import SlotMap
from .statistics import CacheStatistics

_LEAST = 256  # rows of an allocation
WriteRows: TypeAlias = Callable[[int, Tensor, Rows], None]  # of a group, by flat row
_Registered: TypeAlias = tuple[Rows, list[Buffer]]


class HostTables:
    """Rows of groups of tables, in memory or on disk, by flat row; `memory` is the other end of
    every transfer."""

    def __init__(self, groups: Sequence[TableGroup], device: Device, slot_map: SlotMap,
                 statistics: CacheStatistics, memory: SlotMemory) -> None:
        self._groups, self._device = groups, device
        self._slot_map, self._statistics, self._memory = slot_map, statistics, memory
        self._pools = [StagingPool(device, group.kind, memory) for group in groups]
        self._delayed: deque[tuple[Event, int, Tensor, Rows]] = deque()
        self._lock = ForkLock()

    def begin(self, group: int, flat: Tensor) -> Ticket | None:
        """Begin to read flat rows int64[n] that `fetch` will copy, of tables on disk: a ticket."""
        disk = self._groups[group].tables.disk
        return disk.begin(flat) if disk is not None and len(flat) else None

    def fetch(self, group: int, flat: Tensor, listed: RowList | None = None,
              ticket: Ticket | None = None) -> Rows:
        """Copies of distinct flat rows int64[n], in memory of `staging`: Rows.

        `listed` are these rows by the device's tables, if that is known, and `ticket` is what
        `begin` gave for them.
        """
        self.land()
        count, disk = flat.shape[0], self._groups[group].tables.disk
        rows = self.staging(group, count)
        if disk is not None and count:
            disk.finish(ticket or disk.begin(flat), rows)
        elif count:
            listed = listed or self._slot_map.listed(group, flat)
            if self._device.reaches_host:
                self._device.gather(listed, out=rows.array, state_out=rows.side)
            else:  # over the link come the rows alone
                as_array(rows.array)[:] = self._device.gather(listed, state_out=rows.side)
        return rows

    def staging(self, group: int, count: int) -> Rows:
        """Memory for rows on their way, with undefined contents, until `give_back`: Rows."""
        return self._pools[group].take(count)

    def write(self, group: int, flat: Tensor, rows: Rows, listed: RowList | None = None) -> None:
        """Write Rows to the tables; `listed` as in `fetch`."""
        self.land()
        self._write(group, flat, rows, listed)

    def write_after(self, event: Event, group: int, flat: Tensor, rows: Rows) -> None:
        """Write Rows of `staging` that are in host memory after an event; every later call waits
        for that, and raises the device's error if there is one."""
        with self._lock:
            self._delayed.append((event, group, flat, rows))
        if not self._memory.asynchronous:
            with suppress(Exception):  # the optimizer's step goes on, and the next call raises it
                self.land()

    def land(self) -> None:
        """Carry out the writes of `write_after`; those that failed stay."""
        self._land(self._write)

    def land_directly(self) -> None:
        """Carry out the writes of `write_after` without the device."""
        self._land(self.write_directly)

    def _land(self, write: WriteRows) -> None:
        with self._lock:
            while self._delayed:
                event, group, flat, rows = self._delayed[0]
                self._memory.synchronize(event)
                write(group, flat, rows)
                self._delayed.popleft()
                self.give_back(group, rows)

    def write_directly(self, group: int, flat: Tensor, rows: Rows) -> None:
        """Write Rows to the tables in host memory, without the device."""
        tables = self._groups[group].tables
        if tables.disk is not None:
            tables.disk.append(flat, rows)
        else:
            tables.rows.put(flat, rows)

    def give_back(self, group: int, rows: Rows | None) -> None:
        """Let Rows of `staging`, or None, be used again."""
        if rows is not None:
            self._pools[group].give_back(rows)

    def close(self) -> None:
        """Leave the device without registered rows."""
        for pool in self._pools:
            pool.close()

    def count_moved(self, group: int, counts: NDArray[np.int64], rows: int | None = None) -> None:
        """Count rows int64[tables] that crossed the link for training, by the device's table;
        `rows` is their sum."""
        self._statistics.moved(counts, self._groups[group].kind.row_bytes, rows)

    def _write(self, group: int, flat: Tensor, rows: Rows, listed: RowList | None = None) -> None:
        disk = self._groups[group].tables.disk
        if disk is not None:
            disk.append(flat, rows)
        elif len(flat):
            self._device.scatter(listed or self._slot_map.listed(group, flat), rows.array,
                                 state=rows.side)


class StagingPool:
    """Rows of one kind that the device reads and writes in place, registered once.

    On a GPU's host the rows are not kept, because copies that still run may use them. A card that
    does not reach the host's memory gets copies.
    """

    def __init__(self, device: Device, kind: RowKind, memory: SlotMemory) -> None:
        self._device, self._kind, self._memory = device, kind, memory
        self._free: list[_Registered] = []  # by size, with their buffers
        self._taken: dict[Rows, _Registered] = {}
        self._lock = ForkLock()

    def take(self, count: int) -> Rows:
        """`count` rows with undefined contents: Rows."""
        if self._memory.asynchronous or not count:
            return self._memory.staging_rows(self._kind, count)
        with self._lock:
            at = next((at for at, (rows, _) in enumerate(self._free) if len(rows) >= count), -1)
            if at < 0 and self._free:  # too small, and not needed beside a larger one
                self._unregister(self._free.pop()[1])
            whole = self._free.pop(at) if at >= 0 else self._allocate(count)
            rows = whole[0].take(self._kind, slice(count))
            self._taken[rows] = whole
            return rows

    def give_back(self, rows: Rows) -> None:
        """Let rows of `take` be used again."""
        with self._lock:
            whole = self._taken.pop(rows, None)
            if whole is not None:
                self._free.append(whole)
                self._free.sort(key=lambda each: len(each[0]))

    def close(self) -> None:
        """Unregister the rows, none of which is in use."""
        with self._lock:
            for _, buffers in (*self._free, *self._taken.values()):
                self._unregister(buffers)
            self._free.clear()
            self._taken.clear()

    def _allocate(self, count: int) -> _Registered:
        rows = self._memory.staging_rows(self._kind, max(_LEAST, 1 << (count - 1).bit_length()))
        buffers: list[Buffer] = []
        if not self._device.reaches_host:
            return rows, buffers
        with suppress(RegistrationError):  # no handle is free: each command registers its rows
            buffers += [self._device.register(array) for array in (rows.array, rows.side)
                        if array is not None]
        return rows, buffers

    def _unregister(self, buffers: Iterable[Buffer]) -> None:
        for each in buffers:
            self._device.unregister(each)
