"""What the calls of a device return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .tables import TableSet

Words: TypeAlias = NDArray[np.uint32]
Positions: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Done:
    """Of a command without a result: the cycles that it took."""

    cycles: int


@dataclass(frozen=True, eq=False)
class Observation:
    """Of OBSERVE and MARK.

    Attributes
    ----------
    lookups, hits, misses : int
        Lookups of the batch. `hits` are those whose rows the counters held (OBSERVE) or that keep
        their slots (MARK).
    cycles, end : int
        Cycles that the command took, and the device's cycle counter at its end.
    """

    lookups: int
    hits: int
    misses: int
    cycles: int
    end: int


@dataclass(frozen=True, eq=False)
class RowList:
    """Rows of tables: `table` uint32[n], the tables' numbers, and `row` uint32[n].

    `tables` are registered tables that are known to hold these rows, each listed once where a
    command writes them: the driver does not check the list again. `entries` uint64[n] is the list
    as a device has it, table << 32 | row; at `address` the device finds it, as long as the owner of
    that memory keeps it.
    """

    table: Words
    row: Words
    tables: TableSet | None = field(default=None, kw_only=True, repr=False, compare=False)
    entries: NDArray[np.uint64] | None = field(
        default=None, kw_only=True, repr=False, compare=False)
    address: int | None = field(default=None, kw_only=True, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def keys(self) -> NDArray[np.uint64]:
        """Table << 32 | row of each entry; contiguous."""
        if self.entries is not None:
            return self.entries
        return self.table.astype(np.uint64) << np.uint64(32) | self.row


@dataclass(frozen=True, eq=False)
class HotRows(RowList):
    """Result of HARVEST: rows and the `count` uint32[n] of each, the most accessed first."""

    count: Words
    cycles: int


@dataclass(frozen=True, eq=False)
class PlacedRows(RowList):
    """Rows, and for each its place `slots` uint32[n] in the buffer of slots and bypassed rows."""

    slots: Words


@dataclass(frozen=True, eq=False)
class Plan:
    """Of PLAN.

    Attributes
    ----------
    number : int
        Number of the batch.
    slots : uint32[lookups]
        Per lookup, in the order of the batch's ids: the slot of its row, `geometry.slots` + k for
        the k-th bypassed row, or NO_SLOT for an id that does not exist.
    fills : PlacedRows
        Rows to be gathered, bypassed rows included, each once, in order of first appearance.
    evictions : PlacedRows
        Evicted rows that changed since they were gathered: to be scattered before `fills` is
        gathered.
    bypasses : int
        Rows without a slot.
    wait_for : int or None
        A batch. Its bypassed rows must be back in their tables before `fills` is gathered.
    unique, lookups, hits : int
        Rows of the batch, its lookups, and the lookups that found a slot.
    cycles, end : int
        Cycles that the command took, and the device's cycle counter at its end.
    """

    number: int
    slots: Words
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
class Installed:
    """Of INSTALL.

    Attributes
    ----------
    slots : uint32[n]
        Slot of each row, NO_SLOT where both sets of the row are full.
    entries, hits, refused : int
        Rows that have a slot, those among them that had one before, and rows without.
    cycles : int
    """

    slots: Words
    entries: int
    hits: int
    refused: int
    cycles: int


@dataclass(frozen=True, eq=False)
class Removed:
    """Of REMOVE: the `slots` uint32[n] freed, NO_SLOT where a row had none; `entries` were freed,
    `misses` rows had none; the cycles that the command took."""

    slots: Words
    entries: int
    misses: int
    cycles: int


@dataclass(frozen=True, eq=False)
class Split:
    """Of SPLIT.

    Attributes
    ----------
    order : int64[samples]
        Positions of the popular samples (all lookups hit), then of the others; both ascending.
    n_popular : int
    slots : uint32[lookups]
        Per lookup, in the order of the batch's ids: its slot, or MISS_FLAG | index into `misses`.
    misses : RowList
        Missed rows, each once, in order of first appearance.
    lookups, hits : int
    cycles, end : int
        Cycles that the command took, and the device's cycle counter at its end.
    """

    order: Positions
    n_popular: int
    slots: Words
    misses: RowList
    lookups: int
    hits: int
    cycles: int
    end: int

    @property
    def popular(self) -> Positions:
        """Positions of the samples whose lookups all hit."""
        return self.order[:self.n_popular]

    @property
    def nonpopular(self) -> Positions:
        """Positions of the samples with a miss."""
        return self.order[self.n_popular:]


class OpcodeStatistics(NamedTuple):
    """Commands of one opcode that completed, and the sum of their cycles."""

    commands: int = 0
    cycles: int = 0
