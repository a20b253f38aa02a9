"""Counts of a cache, table by table."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...system.forks import ForkLock
from .in_flight import GroupTransfer
from .placement_policy import Placement, SplitPlan

FIELDS = ("lookups", "fills", "evictions", "bypasses", "rows_moved")


class CacheStatistics:
    """Counts of each table's lookups and rows, which any thread may change and read.

    Parameters
    ----------
    names : sequence of str
        Of the tables, by the device's numbers.

    Attributes
    ----------
    hits, link_bytes : int
        Of all tables. A hit is a lookup whose row had a slot before its batch, in every mode.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._counts = {name: np.zeros(len(self._names), np.int64) for name in FIELDS}
        self.hits = self.link_bytes = 0
        self._fetched = np.zeros(0, np.bool_)  # of each slot, of the batch that is counted
        self._lock = ForkLock()

    def planned(self, lookups: NDArray[np.int64], count: int, placement: Placement,
                transfers: Sequence[GroupTransfer], fetched: bool = True) -> None:
        """Count a batch that was planned.

        Parameters
        ----------
        lookups : int64[tables]
            By the device's table.
        count : int
            Their sum.
        placement : Plan or SplitPlan
        transfers : sequence of GroupTransfer
        fetched : bool
            False if bypassed rows stay in the tables.
        """
        with self._lock:
            self.hits += self._hits_of(placement, count)
            self._counts["lookups"] += lookups
            for each in transfers:
                if len(each.victims):
                    self._counts["evictions"] += each.victims.with_slot
                if fetched:
                    self._counts["fills"] += each.fills.with_slot
                    if each.fills.bypassed:
                        self._counts["fills"] += each.fills.without_slot
                        self._counts["bypasses"] += each.fills.without_slot

    def looked_up(self, tables: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Count lookups int64[features] of tables int64[features]."""
        with self._lock:
            np.add.at(self._counts["lookups"], tables, counts)

    def _hits_of(self, placement: Placement, count: int) -> int:
        if isinstance(placement, SplitPlan):
            return placement.hits
        slots, fetched = placement.slots, placement.fills.slots
        if not len(fetched):
            return count
        if (most := int(max(slots.max(), fetched.max()))) >= len(self._fetched):
            self._fetched = np.zeros(most + 1, np.bool_)
        self._fetched[fetched] = True
        hits = len(slots) - int(np.count_nonzero(self._fetched[slots]))
        self._fetched[fetched] = False
        return hits

    def moved(self, counts: NDArray[np.int64], row_bytes: int, rows: int | None = None) -> None:
        """Count rows int64[tables] that crossed the link, `rows` in all."""
        with self._lock:
            self._counts["rows_moved"] += counts
            self.link_bytes += (int(counts.sum()) if rows is None else rows) * row_bytes

    def sent(self, count: int) -> None:
        """Count bytes beside rows that crossed the link."""
        with self._lock:
            self.link_bytes += count

    @property
    def total(self) -> dict[str, int]:
        """Of all tables: dict of `FIELDS`, `hits` and `link_bytes`."""
        with self._lock:
            return {**{name: int(counts.sum()) for name, counts in self._counts.items()},
                    "hits": self.hits, "link_bytes": self.link_bytes}

    @property
    def by_table(self) -> dict[str, dict[str, int]]:
        """Dict by name of dicts of `FIELDS`."""
        with self._lock:
            return {name: {field: int(counts[index]) for field, counts in self._counts.items()}
                    for index, name in enumerate(self._names)}
