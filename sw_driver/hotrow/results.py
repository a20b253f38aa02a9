"""What the calls of a device return."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True, eq=False)
class Observation:
    """Of OBSERVE: lookups counted, of which `hits` were resident in the counters.

    It took `cycles`, the last of them number `end` of the device's counter.
    """

    lookups: int
    hits: int
    misses: int
    cycles: int
    end: int


@dataclass(frozen=True, eq=False)
class Done:
    """Of a command without a result: the cycles that it took."""

    cycles: int


@dataclass(frozen=True, eq=False)
class RowList:
    """Rows of tables: `table` uint32[n], the tables' numbers, and `row` uint32[n]."""

    table: np.ndarray
    row: np.ndarray

    def __len__(self):
        return len(self.row)


@dataclass(frozen=True, eq=False)
class HotRows(RowList):
    """Of HARVEST: the most accessed rows, by `count` uint32[n] descending."""

    count: np.ndarray
    cycles: int


@dataclass(frozen=True, eq=False)
class PlacedRows(RowList):
    """Rows and, for each, its place `slots` uint32[n] in the buffer of slots and bypassed rows."""

    slots: np.ndarray


@dataclass(frozen=True, eq=False)
class Plan:
    """Of PLAN.

    Members
    -------
    number : int
        Of the batch.
    slots : uint32[lookups]
        Per lookup, in the order of the batch's ids: its row's slot, or `geometry.slots` + k of the
        k-th bypassed row; NO_SLOT of an id that does not exist.
    fills : PlacedRows
        Rows to be gathered, bypassed ones among them, each once, in order of first appearance.
    evictions : PlacedRows
        Rows to be scattered before: changed since they came, and now to leave.
    bypasses : int
        Rows without a slot.
    wait_for : int or None
        `fills` may not be gathered before the rows that this batch bypassed are back.
    unique, lookups, hits : int
        Rows of the batch, its lookups, and those among them that found a slot.
    cycles, end : int
        It took `cycles`, the last of them number `end` of the device's counter.
    """

    number: int
    slots: np.ndarray
    fills: PlacedRows
    evictions: PlacedRows
    bypasses: int
    wait_for: int | None
    unique: int
    lookups: int
    hits: int
    cycles: int
    end: int


@dataclass(frozen=True, eq=False)
class Marked:
    """Of MARK: lookups of the batch, and the `hits` among them, whose rows keep their slots."""

    lookups: int
    hits: int
    misses: int
    cycles: int
    end: int


@dataclass(frozen=True, eq=False)
class Installed:
    """Of INSTALL.

    Members
    -------
    slots : uint32[n]
        Slot of each row, NO_SLOT where it was refused for lack of room.
    entries, hits, refused : int
        Rows that have a slot, those among them that had one before, and rows refused.
    """

    slots: np.ndarray
    entries: int
    hits: int
    refused: int
    cycles: int


@dataclass(frozen=True, eq=False)
class Removed:
    """Of REMOVE: the `slots` uint32[n] freed, NO_SLOT where a row had none; their number."""

    slots: np.ndarray
    entries: int
    misses: int
    cycles: int


@dataclass(frozen=True, eq=False)
class Split:
    """Of SPLIT.

    Members
    -------
    order : int64[samples]
        Positions of the popular samples, all of whose lookups hit, then of the others; both
        ascending.
    n_popular : int
    slots : uint32[lookups]
        Per lookup, in the order of the batch's ids: its slot, or MISS_FLAG | index into `misses`.
    misses : RowList
        Missed rows, each once, in order of first appearance.
    lookups, hits : int
    cycles, end : int
        It took `cycles`, the last of them number `end` of the device's counter.
    """

    order: np.ndarray
    n_popular: int
    slots: np.ndarray
    misses: RowList
    lookups: int
    hits: int
    cycles: int
    end: int

    @property
    def popular(self) -> np.ndarray:
        return self.order[:self.n_popular]

    @property
    def nonpopular(self) -> np.ndarray:
        return self.order[self.n_popular:]


class OpcodeStatistics(NamedTuple):
    """Commands of one kind that completed, and the cycles that they took together."""

    commands: int = 0
    cycles: int = 0
