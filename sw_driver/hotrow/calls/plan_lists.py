"""The lists that a PLAN writes, as a `Plan`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract.generated import LIST_ALIGNMENT, NO_BATCH
from ..memory.buffer import Held
from ..operands.integers import numbered
from ..operands.results import PlacedRows, Plan, Words
from ..operands.staging import Pool
from ..operands.tables import TableSet
from ..queues.commands import cycles_of
from ..queues.futures import Completion

_WORDS = LIST_ALIGNMENT // 4
_LISTS = {"slots": 0, "fill_slots": 1, "victim_slots": 2, "fills": 3, "victims": 5}
_ROOMS = 7  # of which the lists above begin at those numbers; an entry of a row has two words
NO_ROWS = PlacedRows(*(np.empty(0, np.uint32) for _ in range(3)))


class PlanLists:
    """Memory for the lists of a plan of some lookups, until `held` is released.

    Parameters
    ----------
    results : Pool
    lookups : int
    held : Held

    Attributes
    ----------
    lease : Lease
    """

    def __init__(self, results: Pool, lookups: int, held: Held) -> None:
        # Of a list of words, as their addresses demand.
        self._lookups, self._room = lookups, -(-lookups // _WORDS) * LIST_ALIGNMENT
        self._results, self.lease = results, results.lease(self._room * _ROOMS, held)

    def operands(self, address: int) -> dict[str, int]:
        """Operands of a PLAN, where the lease has that address: dict of str to int."""
        return {name: address + self._room * first for name, first in _LISTS.items()}

    def read(self, completion: Completion, number: int, tables: TableSet, first_bypassed: int,
             kept: Held | None) -> Plan:
        """The lists, with each bypassed row once: views of them for which `kept` gets the memory,
        or copies."""
        slots, entries = self._words("slots", self._lookups, kept), completion["entries"]
        fills = self._placed("fill", entries, tables, kept)
        evictions = self._placed("victim", completion["evictions"], None, kept)
        if completion["refused"]:  # rows without a slot, which may be listed twice
            fills = _fold_bypassed(slots, fills, first_bypassed)
        if kept is not None:
            self._results.keep(self.lease, kept)
        return plan_of(completion, number, slots, fills, evictions)

    def _words(self, name: str, count: int, kept: Held | None,
               dtype: str = "<u4") -> NDArray[Any]:
        first = self._room * _LISTS[name] // np.dtype(dtype).itemsize
        written = self.lease.written(dtype, count, first)
        return written.copy() if kept is None else written

    def _placed(self, what: str, count: int, tables: TableSet | None,
                kept: Held | None) -> PlacedRows:
        """The rows in a list and their slots: PlacedRows."""
        if not count:
            return NO_ROWS
        name = f"{what}s"
        entries = self._words(name, count, kept, "<u8")
        words = entries.view("<u4")
        return PlacedRows(
            words[1::2], words[::2], self._words(f"{what}_slots", count, kept), tables=tables,
            entries=entries,
            address=None if kept is None else self.lease.address + self._room * _LISTS[name])


def plan_of(completion: Completion, number: int, slots: Words, fills: PlacedRows = NO_ROWS,
            evictions: PlacedRows = NO_ROWS) -> Plan:
    """The plan of a completion, which may list bypassed rows more often than `fills`."""
    repeated_bypasses, wait_for = completion["entries"] - len(fills), completion["wait_for"]
    return Plan(number, slots, fills, evictions, completion["bypasses"] - repeated_bypasses,
                None if wait_for == NO_BATCH else wait_for,
                completion["unique"] - repeated_bypasses,
                completion["lookups"], completion["hits"], cycles_of(completion),
                completion["end"])


def _fold_bypassed(slots: Words, fills: PlacedRows, first: int) -> PlacedRows:
    """List each bypassed row once, in order of first appearance; correct `slots` in place.

    `first` is the first place of the bypass area.
    """
    bypassed = fills.slots >= first
    at, group = numbered(fills.keys)
    if len(at) == len(fills):
        return fills
    listed = at[group] == np.arange(len(fills))  # the first appearance of each row
    place = first + np.cumsum(listed & bypassed) - 1  # of the bypassed among them
    number = np.where(bypassed, place[at[group]], fills.slots).astype(np.uint32)
    missed = np.flatnonzero((slots >= first) & (slots < first + np.count_nonzero(bypassed)))
    slots[missed] = number[bypassed][slots[missed] - np.uint32(first)]
    return PlacedRows(fills.table[listed], fills.row[listed], number[listed], tables=fills.tables)
