"""What a collection asks of the place of its rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol, TypeAlias

import torch

from ..features.bags import Bags
from ..features.configs import TableGroup
from ..features.grouping import Request
from ..memory.slot_memory import SlotMemory
from ..optim.arithmetic import Stepping
from ..optim.gradients import LocatedRows, Staged, StagedGradients
from ..optim.rules import Rule
from .cached import CachedStore
from .in_flight import PendingBackward
from .statistics import CacheStatistics

TakenRows: TypeAlias = tuple[Request, list[LocatedRows], PendingBackward]


class BatchQueue(Protocol):
    """The batches between `prefetch` and `finish`."""

    @property
    def waiting(self) -> int:
        """Batches that were prefetched and not taken."""

    def coming(self, bags: Bags | None = None) -> Request | None:
        """Request of the batch to be taken next, for Bags, if it was prefetched; else None."""

    def open_batches(self) -> Iterator[TakenRows]:
        """The batches that were taken and not finished, the last first."""

    def abandon(self) -> None:
        """Release the batches that were prefetched and not taken."""


class Store(BatchQueue, Protocol):
    """The place of a collection's rows: the tables themselves, or slots that a device fills.

    Batches train in the order of `take`. A batch is *pending* until its backward has run or cannot
    run any more; `finish` releases batches that are not, and the caller calls it only while no
    gradient is staged.

    Attributes
    ----------
    groups : tuple of TableGroup
    slot_memory : SlotMemory
        Memory from which rows are pooled.
    card : CachedStore or None
        The slots of this process, and the device that fills them; None without slots.
    several_ranks : bool
        Whether other processes have a part of the rows.
    ahead : int
        Batches that a pipeline prefetches beyond the one that trains.
    on_card : collection of str
        Names of the tables that are in a card's memory, and up to date in the host's by `flush`.
    statistics : CacheStatistics or None
    """

    groups: tuple[TableGroup, ...]
    slot_memory: SlotMemory
    several_ranks: bool

    @property
    def ahead(self) -> int: ...

    @property
    def on_card(self) -> Collection[str]: ...

    @property
    def statistics(self) -> CacheStatistics | None: ...

    @property
    def card(self) -> CachedStore | None: ...

    def prefetch(self, request: Request) -> None:
        """Begin to bring the rows of a batch that will be taken."""

    def take(self, request: Request,
             begin: Callable[[], None] | None = None) -> tuple[list[LocatedRows], PendingBackward]:
        """Bring the rows of a batch that trains, one entry per segment; `begin` may write rows
        before anybody reads them."""

    def look(self, request: Request) -> list[LocatedRows]:
        """Read the rows of a batch that does not train; nothing is counted and no slot changes."""

    def observe(self, request: Request) -> None:
        """Count the lookups of a batch that does not train."""

    def step(self, staged: Sequence[StagedGradients], rule: Rule,
             finite: torch.Tensor | None = None) -> Callable[[], None]:
        """Check the step of every group, and return the call that changes rows; arguments as in
        `optim.arithmetic.updated`."""

    def apply_bags(self, group: int, staged: Staged, rule: Rule) -> None:
        """Update the rows of StagedBags or CardBags, which a card pooled."""

    def finish(self, holds_gradients: bool = False) -> None:
        """Release the batches taken so far that are not pending; none if gradients are staged."""

    def flush(self) -> None:
        """Write trained rows back to the tables, and fetch what a card has of them."""

    def upload(self) -> None:
        """Send what others wrote to the tables to a card that has them."""

    def reset(self) -> None:
        """Empty the slots, because somebody writes to the tables."""

    def reload(self) -> None:
        """Read what is in memory of tables on disk, which are at another commit."""

    def close(self) -> None:
        """Write back, and end the threads."""


class OwnStore(Store, Protocol):
    """A store of rows in this process's memory."""

    def apply(self, group: int, flat: torch.Tensor, sums: torch.Tensor, rule: Stepping,
              finite: torch.Tensor | None = None) -> None:
        """Update flat rows int64[u] of batches that are not finished; arguments as in
        `optim.arithmetic.updated`. Their keys are `optim.rounding.row_keys` of the whole rows."""
