"""Reads and writes of tables in host memory through a device."""

import threading
from collections import deque


class HostTables:
    """Rows of groups of tables, by flat row; `memory` is the other end of every transfer."""

    def __init__(self, groups, device, slot_map, statistics, memory):
        self._groups, self._device = groups, device
        self._slot_map, self._statistics, self._memory = slot_map, statistics, memory
        self._delayed: deque[tuple] = deque()
        self._lock = threading.Lock()

    def fetch(self, group, flat):
        """Copies of flat rows int64[n]: Rows."""
        self.land()
        rows = self._memory.staging_rows(self._groups[group].kind, len(flat))
        if len(flat):
            self._device.gather(self._slot_map.listed(group, flat), out=rows.array,
                                state_out=rows.side)
        return rows

    def write(self, group, flat, rows):
        """Write Rows to the tables."""
        self.land()
        self._write(group, flat, rows)

    def write_after(self, event, group, flat, rows):
        """Write Rows that are in host memory after an event; every later call waits for that."""
        with self._lock:
            self._delayed.append((event, group, flat, rows))
        if not self._memory.asynchronous:
            self.land()

    def land(self):
        """Carry out the writes of `write_after`."""
        with self._lock:
            while self._delayed:
                event, group, flat, rows = self._delayed.popleft()
                self._memory.synchronize(event)
                self._write(group, flat, rows)

    def count_moved(self, group, tables):
        """Count rows that crossed the link for training, by the device's table of each."""
        self._statistics.moved(tables, self._groups[group].kind.row_bytes)

    def _write(self, group, flat, rows):
        if len(flat):
            self._device.scatter(self._slot_map.listed(group, flat), rows.array, state=rows.side)
