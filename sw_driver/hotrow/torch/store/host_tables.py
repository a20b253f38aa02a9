"""Reads and writes of tables in host memory through a device, and rows on their way."""

import threading
from collections import deque
from contextlib import suppress

from ...contract.errors import RegistrationError
from ...memory.buffer import as_array
from ..memory.read_ahead import ReadAhead
from ..memory.rows import Rows

_LEAST = 256  # rows of an allocation


class HostTables:
    """Rows of groups of tables, by flat row; `memory` is the other end of every transfer.

    Attributes
    ----------
    reads : ReadAhead
        Of tables in files.
    """

    def __init__(self, groups, device, slot_map, statistics, memory):
        self._groups, self._device = groups, device
        self._slot_map, self._statistics, self._memory = slot_map, statistics, memory
        self.reads = ReadAhead(group.tables for group in groups)
        self._pools = [StagingPool(device, group.kind, memory) for group in groups]
        self._delayed: deque[tuple] = deque()
        self._lock = threading.Lock()

    def fetch(self, group, flat, listed=None):
        """Copies of distinct flat rows int64[n], in memory of `staging`: Rows.

        `listed` are these rows by the device's tables, if that is known. Rows of tables in files
        were read by `reads`.
        """
        self.land()
        count = flat.shape[0]
        rows = self.staging(group, count)
        if count:
            listed = listed or self._slot_map.listed(group, flat)
            if self._device.reaches_host:
                self._device.gather(listed, out=rows.array, state_out=rows.side)
            else:  # over the link come the rows alone
                as_array(rows.array)[:] = self._device.gather(listed, state_out=rows.side)
        return rows

    def staging(self, group, count):
        """Memory for rows on their way, with undefined contents, until `give_back`: Rows."""
        return self._pools[group].take(count)

    def write(self, group, flat, rows, listed=None):
        """Write Rows to the tables; `listed` as in `fetch`."""
        self.land()
        self._write(group, flat, rows, listed)

    def write_after(self, event, group, flat, rows):
        """Write Rows of `staging` that are in host memory after an event; every later call waits
        for that, and raises the device's error if there is one."""
        with self._lock:
            self._delayed.append((event, group, flat, rows))
        if not self._memory.asynchronous:
            with suppress(Exception):  # the optimizer's step goes on, and the next call raises it
                self.land()

    def land(self):
        """Carry out the writes of `write_after`; those that failed stay."""
        self._land(self._write)

    def land_directly(self):
        """Carry out the writes of `write_after` without the device."""
        self._land(self.write_directly)

    def _land(self, write):
        with self._lock:
            while self._delayed:
                event, group, flat, rows = self._delayed[0]
                self._memory.synchronize(event)
                write(group, flat, rows)
                self._delayed.popleft()
                self.give_back(group, rows)

    def write_directly(self, group, flat, rows):
        """Write Rows to the tables in host memory, without the device."""
        self._groups[group].tables.rows.put(flat, rows)

    def give_back(self, group, rows):
        """Let Rows of `staging`, or None, be used again."""
        if rows is not None:
            self._pools[group].give_back(rows)

    def close(self):
        """Leave the device without registered rows."""
        for pool in self._pools:
            pool.close()

    def count_moved(self, group, counts, rows=None):
        """Count rows int64[tables] that crossed the link for training, by the device's table;
        `rows` is their sum."""
        self._statistics.moved(counts, self._groups[group].kind.row_bytes, rows)

    def _write(self, group, flat, rows, listed=None):
        if len(flat):
            self._device.scatter(listed or self._slot_map.listed(group, flat), rows.array,
                                 state=rows.side)


class StagingPool:
    """Rows of one kind that the device reads and writes in place, registered once.

    On a GPU's host the rows are not kept, because copies that still run may use them. A card that
    does not reach the host's memory gets copies.
    """

    def __init__(self, device, kind, memory):
        self._device, self._kind, self._memory = device, kind, memory
        self._free: list[tuple[Rows, list]] = []  # by size, with their buffers
        self._taken: dict[Rows, tuple[Rows, list]] = {}
        self._lock = threading.Lock()

    def take(self, count):
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

    def give_back(self, rows):
        """Let rows of `take` be used again."""
        with self._lock:
            whole = self._taken.pop(rows, None)
            if whole is not None:
                self._free.append(whole)
                self._free.sort(key=lambda each: len(each[0]))

    def close(self):
        """Unregister the rows, none of which is in use."""
        with self._lock:
            for _, buffers in (*self._free, *self._taken.values()):
                self._unregister(buffers)
            self._free.clear()
            self._taken.clear()

    def _allocate(self, count):
        rows = self._memory.staging_rows(self._kind, max(_LEAST, 1 << (count - 1).bit_length()))
        buffers: list = []
        if not self._device.reaches_host:
            return rows, buffers
        with suppress(RegistrationError):  # no handle is free: each command registers its rows
            buffers += map(self._device.register, filter(
                lambda each: each is not None, (rows.array, rows.side)))
        return rows, buffers

    def _unregister(self, buffers):
        for each in buffers:
            self._device.unregister(each)
