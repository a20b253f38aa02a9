"""What a cache did, table by table."""

import numpy as np

FIELDS = ("lookups", "hits", "fills", "evictions", "bypasses", "rows_moved")


class CacheStatistics:
    """Counts of each table's lookups and rows.

    Parameters
    ----------
    names : sequence of str
        Of the tables, by the device's numbers.

    Members
    -------
    hits, link_bytes : int
        Of all tables together; hits as the card counts them, to which repeated lookups of a row may
        belong that their batch itself brings.
    """

    def __init__(self, names):
        self._names = tuple(names)
        self._counts = {name: np.zeros(len(self._names), np.int64) for name in FIELDS}
        self.hits = self.link_bytes = 0

    def planned(self, tables, counts, placing, slots):
        """A batch got its places.

        Parameters
        ----------
        tables : sequence of int
            Number of the table of each feature.
        counts : sequence of int
            Lookups of each feature.
        placing : Placing
        slots : int
            Of the directory; places from there on are of rows without one.
        """
        table = np.repeat(tables, counts)
        hit = ~np.isin(placing.slots, placing.fills.slots)  # unless its row is one of those to come
        self.hits += placing.hits
        self._count("lookups", table)
        self._count("hits", table[hit])
        self._count("fills", placing.fills.table)
        self._count("evictions", placing.evictions.table)
        self._count("bypasses", placing.fills.table[placing.fills.slots >= slots])

    def moved(self, tables, row_bytes):
        """Rows of these tables, one number each, crossed the link."""
        self._count("rows_moved", tables)
        self.link_bytes += len(tables) * row_bytes

    @property
    def total(self):
        """Of all tables: dict of `FIELDS` and `link_bytes`."""
        return {**{name: int(counts.sum()) for name, counts in self._counts.items()},
                "hits": self.hits, "link_bytes": self.link_bytes}

    @property
    def by_table(self):
        """Dict by name of dicts of `FIELDS`, and `misses`; a lookup is a hit if its row had a slot
        before its batch."""
        found = {}
        for at, name in enumerate(self._names):
            found[name] = {field: int(counts[at]) for field, counts in self._counts.items()}
            found[name]["misses"] = found[name]["lookups"] - found[name]["hits"]
        return found

    def _count(self, field, tables):
        self._counts[field] += np.bincount(tables, minlength=len(self._names))
