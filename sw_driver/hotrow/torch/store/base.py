"""What a collection asks of the place of its rows."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import torch

from ...contract.errors import Error
from ..memory.rows import Rows
from ..memory.slot_memory import SlotMemory, to_device
from ..optim.gradients import LocatedRows

if TYPE_CHECKING:
    from ...device import Device
    from ...operands.results import RowList
    from ..features.bags import Bags
    from ..features.configs import TableGroup
    from ..features.grouping import Request
    from ..memory.slots import SlotStorage
    from ..optim.arithmetic import Stepping
    from ..optim.gradients import StagedBags, StagedGradients
    from ..optim.rules import Rule
    from .batch_stages import BatchStages
    from .in_flight import BatchWindow
    from .micro_batches import MicroBatches
    from .statistics import CacheStatistics


class Pending(Protocol):
    """A lookup, or a batch of them."""

    done: bool


class PendingBackward:
    """Lookups of one batch whose backward may still run; holds weak references only."""

    def __init__(self) -> None:
        self._lookups: list[weakref.ref[Pending]] = []

    def add(self, lookup: Pending) -> None:
        """Add an object with an attribute `done`."""
        self._lookups.append(weakref.ref(lookup))

    @property
    def done(self) -> bool:
        """Whether the backward of every lookup has run or cannot run any more."""
        return all(lookup is None or lookup.done for lookup in (each() for each in self._lookups))


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
    several_ranks : bool
        Whether other processes have a part of the rows.
    pools_cold_rows : bool
        Whether the card pools rows without a slot.
    reached : dict of int to bool
        Groups whose rows the step reached; False if it failed there, perhaps half way.
    copies_excess : bool
        Whether batches beyond those that the card follows train with copies of their rows.
    on_card : sequence of str
        Names of the tables whose rows or state a card has, too.
    device, statistics, batch_stages, micro_batches, window
        As in `CachedStore`; None in a store without a device.
    """

    slots, depth, look_ahead = 0, 1, 0
    several_ranks = False
    copies_excess = False
    pools_cold_rows = False
    storages: Sequence[SlotStorage] = ()
    on_card: Sequence[str] = ()
    device: Device | None = None
    statistics: CacheStatistics | None = None
    batch_stages: BatchStages | None = None
    micro_batches: MicroBatches | None = None
    window: BatchWindow | None = None

    def __init__(self, groups: Iterable[TableGroup]) -> None:
        self.groups, self.slot_memory = tuple(groups), SlotMemory()
        self.reached: dict[int, bool] = {}

    @abstractmethod
    def take(self, request: Request,
             begin: Callable[[], None] | None = None) -> tuple[list[LocatedRows], PendingBackward]:
        """Bring the rows of a batch that trains, one entry per segment; `begin` may `apply` to them
        before anybody reads them."""

    def take_part(self, request: Request, samples: torch.Tensor, wait: bool, last: bool,
                  ) -> tuple[list[LocatedRows], PendingBackward]:
        """Bring the rows of some samples, as `MicroBatches.take`."""
        if self.micro_batches is None:
            raise Error("a store without a device takes batches whole")
        return self.micro_batches.take(request, samples, wait, last)

    @abstractmethod
    def read(self, group: int, flat: torch.Tensor) -> Rows:
        """Copies of flat rows int64[u] of a group, with every applied step."""

    @abstractmethod
    def apply(self, group: int, flat: torch.Tensor, sums: torch.Tensor, rule: Stepping,
              finite: torch.Tensor | None = None) -> None:
        """Update flat rows int64[u] of batches that are not finished; arguments as in
        `optim.arithmetic.updated`. Their keys are `optim.rounding.row_keys` of the whole rows."""

    def apply_bags(self, group: int, staged: StagedBags, rule: Rule) -> None:
        """Update the rows of StagedBags."""
        raise Error("this store has no card that pools rows")

    def apply_all(self, staged: Sequence[StagedGradients], rule: Rule,
                  finite: torch.Tensor | None = None) -> None:
        """Apply the StagedGradients of every group, and record the groups in `reached`."""
        for group, each in enumerate(staged):
            if each.values is not None:
                self.apply_staged(group, each, rule, finite)

    def apply_staged(self, group: int, staged: StagedGradients, rule: Rule,
                     finite: torch.Tensor | None = None) -> None:
        """Apply StagedGradients of a group."""
        assert staged.values is not None, "nothing is staged"
        self.apply(group, staged.rows, staged.values, rule, finite)

    @contextmanager
    def stepping(self, group: int) -> Iterator[None]:
        """Rows of a group change in this block; a plain Error within says that none has."""
        self.reached[group] = False
        try:
            yield
        except Error as error:
            if type(error) is Error:
                del self.reached[group]
            raise
        self.reached[group] = True

    def look(self, request: Request) -> list[LocatedRows]:
        """Read the rows of a batch that does not train; nothing is counted and no slot changes."""
        located = []
        for segment in request.segments:
            distinct, at = torch.unique(segment.flat, return_inverse=True)
            rows = self.read(segment.group, distinct)
            located.append(
                LocatedRows(Rows(to_device(rows.weights, self.slot_memory.device)), at))
        return located

    @property
    def closed(self) -> bool:
        """Whether rows are in the tables of a card that the store gave back, and do not train."""
        return False

    @property
    def waiting(self) -> int:
        """Batches that were prefetched and not taken."""
        return 0

    def coming(self, bags: Bags | None = None) -> Request | None:
        """Request of the batch to be taken next, for Bags, if it was prefetched; else None."""
        return None

    def take_again(self, bags: Bags) -> tuple[Request, list[LocatedRows], PendingBackward] | None:
        """The rows of a batch that was taken and not finished, by its Bags; None without one."""
        return None

    def open_batches(self) -> Iterator[tuple[Request, list[LocatedRows], PendingBackward]]:
        """The batches that were taken and not finished, the last first."""
        return iter(())

    def check_room(self) -> None:  # noqa: B027
        """Raise Error if no further batch with lookups can be taken before one has trained."""

    def prefetch(self, request: Request) -> None:  # noqa: B027
        """Begin to bring the rows of a batch that will be taken."""

    def finish(self, holds_gradients: bool = False) -> None:  # noqa: B027
        """Release the batches taken so far that are not pending; none if gradients are staged."""

    def observe(self, request: Request) -> None:  # noqa: B027
        """Count the lookups of a batch that does not train."""

    def hottest(self, limit: int, decay: int = 0) -> RowList:
        """The rows that the device counted most, after a right shift of all counts."""
        raise Error("a store without a device counts no rows")

    def device_table(self, number: int) -> int:
        """The device's number of a table of the collection."""
        raise Error("a store without a device has no tables there")

    def warm(self, rows: RowList) -> int:
        """Give rows their slots between two batches; return how many have one."""
        return 0

    def memory(self) -> dict[str, float]:
        """Bytes beside the tables, without gradients; empty without slots."""
        return {}

    def flush(self) -> None:  # noqa: B027
        """Write trained rows back to the tables, and fetch what a card has of them."""

    def upload(self) -> None:  # noqa: B027
        """Send what others wrote to the tables to a card that has them."""

    def reset(self) -> None:  # noqa: B027
        """Empty the slots, because somebody writes to the tables."""

    def reload(self) -> None:  # noqa: B027
        """Read what is in memory of tables on disk, which are at another commit."""

    def abandon(self) -> None:  # noqa: B027
        """Release the batches that were prefetched and not taken."""

    def close(self) -> None:  # noqa: B027
        """Write back, and end the threads."""
