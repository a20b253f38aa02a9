"""Tables in host memory as a device carries their rows, to the trainer and back."""

import threading
from collections import deque


class HostTables:
    """Rows of groups of tables, by flat row.

    Parameters
    ----------
    groups : sequence of TableGroup
    device : Device
    numbers : SlotNumbers
    statistics : CacheStatistics
        Are told what crosses the link.
    memory : SlotMemory
        To which rows go, and from which they come.
    """

    def __init__(self, groups, device, numbers, statistics, memory):
        self._groups, self._device = groups, device
        self._numbers, self._statistics, self._memory = numbers, statistics, memory
        self._coming, self._lock = deque(), threading.Lock()

    def fetch(self, group, flat):
        """Copies of flat rows int64[n]: Rows."""
        self.land()
        rows = self._memory.host_rows(self._groups[group].kind, len(flat))
        if len(flat):
            self._device.gather(self._numbers.listed(group, flat), out=rows.array,
                                state_out=rows.side)
        return rows

    def write(self, group, flat, rows):
        """Bring Rows to the tables."""
        self.land()
        self._write(group, flat, rows)

    def write_behind(self, mark, group, flat, rows):
        """Bring Rows to the tables that are in host memory behind a mark: before anything else is
        read or written."""
        with self._lock:
            self._coming.append((mark, group, flat, rows))
        if not self._memory.late:
            self.land()

    def land(self):
        """Bring to the tables what was to be brought there behind marks."""
        with self._lock:
            while self._coming:
                mark, group, flat, rows = self._coming.popleft()
                self._memory.wait(mark)
                self._write(group, flat, rows)

    def _write(self, group, flat, rows):
        if len(flat):
            self._device.scatter(self._numbers.listed(group, flat), rows.array, state=rows.side)

    def moved(self, group, flat):
        """Count flat rows int64[n] that crossed the link for training's sake."""
        self._statistics.moved(self._numbers.listed(group, flat).table,
                               self._groups[group].kind.row_bytes)
