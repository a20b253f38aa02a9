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
