"""Counts of a cache, table by table."""

import numpy as np

FIELDS = ("lookups", "hits", "fills", "evictions", "bypasses", "rows_moved")


class CacheStatistics:
    """Counts of each table's lookups and rows; `names` are the tables', by the device's numbers.

    Attributes
    ----------
    hits, link_bytes : int
        Of all tables. The card counts `hits`: repeated lookups of a row that the batch itself
        fetches may be among them.
    """

    def __init__(self, names):
        self._names = tuple(names)
        self._counts = {name: np.zeros(len(self._names), np.int64) for name in FIELDS}
        self.hits = self.link_bytes = 0

    def planned(self, tables, counts, placement, slots, fetched=True):
        """Count a batch that was planned.

        Parameters
        ----------
        tables, counts : sequence of int
            The device's table of each feature, and lookups of it.
        placement : Placement
        slots : int
            Slots of the directory; larger slot numbers are of bypassed rows.
        fetched : bool
            False if bypassed rows stay in the tables.
        """
        fills = placement.fills.slots.astype(np.int64)
        filled = np.zeros(slots + len(fills), bool)
        filled[fills] = True
        hit = ~filled[placement.slots]  # the row had a slot before
        self.hits += placement.hits
        for table, here in zip(tables, np.split(hit, np.cumsum(counts)[:-1]), strict=True):
            self._counts["lookups"][table] += len(here)
            self._counts["hits"][table] += np.count_nonzero(here)
        self._count("evictions", placement.evictions.table)
        if fetched:
            self._count("fills", placement.fills.table)
            self._count("bypasses", placement.fills.table[fills >= slots])

    def moved(self, tables, row_bytes):
        """Count rows that crossed the link, by table: one number per row."""
        self._count("rows_moved", tables)
        self.link_bytes += len(tables) * row_bytes

    @property
    def total(self):
        """Of all tables: dict of `FIELDS` and `link_bytes`."""
        return {**{name: int(counts.sum()) for name, counts in self._counts.items()},
                "hits": self.hits, "link_bytes": self.link_bytes}

    @property
    def by_table(self):
        """Dict by name of dicts of `FIELDS` and `misses`; here a hit is a lookup whose row had a
        slot before its batch."""
        found = {}
        for index, name in enumerate(self._names):
            found[name] = {field: int(counts[index]) for field, counts in self._counts.items()}
            found[name]["misses"] = found[name]["lookups"] - found[name]["hits"]
        return found

    def _count(self, field, tables):
        self._counts[field] += np.bincount(tables, minlength=len(self._names))
