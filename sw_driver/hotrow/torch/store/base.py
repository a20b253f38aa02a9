"""What a collection asks of the place of its rows."""

import weakref
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from ..memory.rows import Rows
from ..memory.slot_memory import SlotMemory, to_device


@dataclass(frozen=True, eq=False)
class LocatedRows:
    """The rows of a segment's lookups.

    Attributes
    ----------
    rows : Rows
    at : int64[n]
        Index in `rows` of each lookup's row.
    lock : context manager
        Keeps the memory of `rows` in place.
    sums : float32[bags, D], optional
        Part of each bag that the card pooled.
    cold : bool[n], optional
        Lookups in `sums`; their index in `rows` is that of a row of zeros.
    """

    rows: Rows
    at: torch.Tensor
    lock: AbstractContextManager = field(default_factory=nullcontext)
    sums: torch.Tensor | None = None
    cold: torch.Tensor | None = None


class PendingBackward:
    """Lookups of one batch whose backward may still run; holds weak references only."""

    def __init__(self):
        self._lookups = []

    def add(self, lookup):
        """Add an object with an attribute `done`."""
        self._lookups.append(weakref.ref(lookup))

    @property
    def done(self):
        """Whether the backward of every lookup has run or cannot run any more."""
        return all(each() is None or each().done for each in self._lookups)


class Store(ABC):
    """The place of a collection's rows: the tables themselves, or slots that a device fills.

    Batches train in the order of `take`. A batch is *pending* until its backward has run or cannot
    run any more; `finish` releases batches that are not, and the caller calls it only while no
    gradient is staged.

    Parameters
    ----------
    groups : sequence of TableGroup

    Attributes
    ----------
    slot_memory : SlotMemory
        Memory from which rows are pooled.
    slots : int
        Slots of all groups, 0 without a device.
    storages : sequence of SlotStorage
        One per group; none without a device.
    depth, look_ahead : int
        As in `CachedStore`.
    device, slot_map, statistics, batch_stages, micro_batches
        Parts of a `CachedStore`, None elsewhere.
    """

    slots, storages, depth, look_ahead = 0, (), 1, 0
    device = slot_map = statistics = batch_stages = micro_batches = None

    def __init__(self, groups):
        self.groups, self.slot_memory = tuple(groups), SlotMemory()

    @abstractmethod
    def take(self, request) -> tuple[list[LocatedRows], PendingBackward]:
        """Bring the rows of a batch that trains, one entry per segment."""

    @abstractmethod
    def read(self, group, flat) -> Rows:
        """Copies of flat rows int64[u] of a group, with every applied step."""

    @abstractmethod
    def apply(self, group, flat, sums, rule, finite=None):
        """Update flat rows int64[u] of batches that are not finished; arguments as in
        `optim.arithmetic.updated`."""

    def apply_all(self, staged, rule, finite=None):
        """Apply the StagedGradients of every group and clear them."""
        for group, each in enumerate(staged):
            if each.values is not None:
                self.apply(group, each.rows, each.values, rule, finite)
                each.clear()

    def look(self, request) -> list[LocatedRows]:
        """Read the rows of a batch that does not train; nothing is counted and no slot changes."""
        located = []
        for segment in request.segments:
            rows, at = torch.unique(segment.flat, return_inverse=True)
            rows = self.read(segment.group, rows)
            located.append(
                LocatedRows(Rows(to_device(rows.weights, self.slot_memory.device)), at))
        return located

    @property
    def waiting(self) -> int:
        """Batches that were prefetched and not taken."""
        return 0

    def coming(self, bags=None):
        """Request of the batch to be taken next, for Bags, if it was prefetched; else None."""
        return None

    def prefetch(self, request):  # noqa: B027
        """Begin to bring the rows of a batch that will be taken."""

    def finish(self, holds_gradients=False):  # noqa: B027
        """Release the batches taken so far that are not pending; none if gradients are staged."""

    def observe(self, request):  # noqa: B027
        """Count the lookups of a batch that does not train."""

    def flush(self):  # noqa: B027
        """Write trained rows back to the tables."""

    def reset(self):  # noqa: B027
        """Empty the slots, because somebody writes to the tables."""

    def abandon(self):  # noqa: B027
        """Release the batches that were prefetched and not taken."""

    def close(self):  # noqa: B027
        """Write back, and end the threads."""
