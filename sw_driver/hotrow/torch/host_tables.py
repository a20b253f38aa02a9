"""Tables in host memory as a device carries their rows, to the trainer and back."""


class HostTables:
    """Rows of groups of tables, by flat row.

    Parameters
    ----------
    groups : sequence of TableGroup
    device : Device
    numbers : SlotNumbers
    statistics : CacheStatistics
        Are told what crosses the link.
    """

    def __init__(self, groups, device, numbers, statistics):
        self._groups, self._device = groups, device
        self._numbers, self._statistics = numbers, statistics

    def fetch(self, group, flat):
        """Copies of flat rows int64[n]: Rows."""
        rows = self._groups[group].kind.allocate(len(flat))
        if len(flat):
            self._device.gather(self._numbers.listed(group, flat), out=rows.array,
                                state_out=rows.side)
        return rows

    def write(self, group, flat, rows):
        """Bring Rows to the tables."""
        if len(flat):
            self._device.scatter(self._numbers.listed(group, flat), rows.array, state=rows.side)

    def moved(self, group, flat):
        """Count flat rows int64[n] that crossed the link for training's sake."""
        self._statistics.moved(self._numbers.listed(group, flat).table,
                               self._groups[group].kind.row_bytes)
