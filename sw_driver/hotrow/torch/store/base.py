"""Where a collection's rows are while they train, and what every such place offers."""

import weakref
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch

from ..memory.rows import Rows
from ..memory.slot_memory import SlotMemory, carried
from ..optim.arithmetic import pool, stepped


@dataclass(frozen=True, eq=False)
class Request:
    """Bags that are to be looked up: `bags`, sorted by group, and their `segments`."""

    bags: object
    segments: list


@dataclass(frozen=True, eq=False)
class Placed:
    """Where the rows of a segment are: lookup i at `rows`[`at`[i]], whose memory `lock` keeps."""

    rows: Rows
    at: torch.Tensor
    lock: object = field(default_factory=nullcontext)


class Lookup:
    """One segment on its way through forward and backward.

    Parameters
    ----------
    segment : Segment
    placed : Placed
    divisor : float32[bags, 1] or None
        By which sums are divided.
    staged : StagedGradients
        Of its group.
    pooled : bool
        Whether bags are pooled; else each lookup has its row.

    Members
    -------
    over : bool
        Backward has been there.
    """

    def __init__(self, segment, placed, divisor, staged, pooled=True):
        self.segment, self.placed, self.divisor = segment, placed, divisor
        self.staged, self.pooled, self.over = staged, pooled, False

    def pool(self, weights):
        """(float32[bags, D], rows of the lookups if the weights' gradient will need them); without
        pooling (float32[n, D], None)."""
        placed = self.placed
        with placed.lock:
            stored, there = placed.rows.weights, placed.rows.weights.device
            at = carried(placed.at, there)
            if not self.pooled:
                return stored[at].float(), None
            pooled = pool(stored, at, carried(self.segment.lengths, there), weights)
            rows = None
            if weights is not None and weights.requires_grad:
                rows = stored[at].float()
        return (pooled if self.divisor is None else pooled / carried(self.divisor, there)), rows

    def stage(self, gradients, weights, rows):
        """Stage gradients of what `pool` gave; the gradient of the weights, or None."""
        if self.divisor is not None:
            gradients = gradients / carried(self.divisor, gradients.device)
        lengths = self.segment.lengths
        bags = torch.arange(len(self.segment.flat)) if not self.pooled else (
            torch.repeat_interleave(torch.arange(len(lengths)), lengths))
        self.staged.add(self.segment.flat, bags, gradients, weights)
        self.over = True
        return None if rows is None else (
            gradients[carried(bags, gradients.device)] * rows).sum(1)

    def staged_none(self):
        self.over = True


class Open:
    """Lookups whose backward may come yet; they are not kept alive by this."""

    def __init__(self):
        self._lookups = []

    def add(self, lookup):
        self._lookups.append(weakref.ref(lookup))

    @property
    def over(self):
        """Whether each was there, or never will be."""
        return all(each() is None or each().over for each in self._lookups)


class Store(ABC):
    """A place of rows: those of the tables themselves, or slots with a device behind them.

    Batches are taken in order. A batch is *open* until its backward was run or cannot be; when
    none is open and nothing is staged, `finish` lets them go.

    Parameters
    ----------
    groups : sequence of TableGroup

    Members
    -------
    slot_memory : SlotMemory
        From which rows are pooled.
    """

    def __init__(self, groups):
        self.groups, self.slot_memory = tuple(groups), SlotMemory()

    @abstractmethod
    def take(self, request) -> tuple[list[Placed], Open]:
        """Bring the rows of a batch that trains."""

    @abstractmethod
    def read(self, group, flat) -> Rows:
        """Copies of flat rows int64[u] of a group, as they are after all that was applied."""

    @abstractmethod
    def apply(self, group, flat, sums, rule, sound=None):
        """Update flat rows int64[u], looked up by batches that are not finished; arguments as of
        `stepped`."""

    def look(self, request) -> list[Placed]:
        """Read the rows of a batch that does not train; nothing is counted or moved into a slot."""
        placed = []
        for segment in request.segments:
            rows, at = torch.unique(segment.flat, return_inverse=True)
            rows = self.read(segment.group, rows)
            placed.append(Placed(Rows(carried(rows.weights, self.slot_memory.device)), at))
        return placed

    @property
    def waiting(self) -> int:
        """Batches that were prefetched and not taken."""
        return 0

    def prefetch(self, request):  # noqa: B027
        """Begin to bring the rows of a batch that will be taken."""

    def finish(self):  # noqa: B027
        """Let go of the batches taken so far, as far as they are not open."""

    def flush(self):  # noqa: B027
        """Write to the tables what was trained elsewhere."""

    def reset(self):  # noqa: B027
        """The tables' contents were changed: keep nothing of them."""

    def abandon(self):  # noqa: B027
        """Let go of batches that were prefetched and not taken."""

    def close(self):  # noqa: B027
        """Write back, and stop."""


class ResidentStore(Store):
    """Mode `resident`: all tables in the trainer's own memory, and no device."""

    def take(self, request):
        return self.look(request), Open()

    def look(self, request):
        return [Placed(self.groups[each.group].tables.rows, each.flat)
                for each in request.segments]

    def read(self, group, flat):
        tables = self.groups[group].tables
        return tables.rows.take(tables.kind, flat)

    def apply(self, group, flat, sums, rule, sound=None):
        rows = self.groups[group].tables.rows
        rows.write(flat, *stepped(rule, *rows.read(flat), sums, sound))
