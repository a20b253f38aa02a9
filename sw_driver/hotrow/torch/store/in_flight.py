"""Batches between `prefetch` and their optimizer step."""

import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from ...contract.errors import Error
from ...kernels.listing import ListedRows
from ...memory.buffer import Held
from ...operands.batch import Batch
from ..features.grouping import Request, Segment
from ..memory.rows import Rows


class Pending(Protocol):
    """A lookup, or a batch of them.

    Attributes
    ----------
    done : bool
        Whether its backward has run or cannot run any more.
    """

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


@dataclass(eq=False)
class GroupTransfer:
    """The rows of one group that a batch needs, and their way to the slots."""

    segment: Segment
    places: torch.Tensor  # int32[n]: of each lookup's row, in the group's storage
    fills: ListedRows  # to fetch
    fill_places: torch.Tensor  # int32[f]
    victims: ListedRows  # trained rows that leave their slots
    victim_slots: torch.Tensor  # int32[v]
    bypass_places: torch.Tensor  # int64[b]: reserved for rows without a slot
    ticket: Any = None  # of `fills` on disk, whose rows are on their way
    fetched: Rows | None = None  # contents of `fills` in host memory, on their way
    uploaded: Rows | None = None  # and in the memory of the slots
    written_back: Rows | None = None  # contents of `victims` in host memory, on their way
    read_event: Any = None  # of the slots' memory: victims were read
    insert_event: Any = None  # fills are in their slots
    device_places: Any = None  # `places` in the memory of the slots, once inserted
    cold: torch.Tensor | None = None  # bool[n]: lookups whose rows the card trains
    pooling: Any = None  # Future of POOL while it runs
    sums: torch.Tensor | None = None  # float32[bags, D]: of the bags that it pools

    @property
    def bypassed(self) -> bool:
        """Whether rows have no slot."""
        return self.bypass_places.shape[0] > 0

    def find(self, flat: torch.Tensor) -> torch.Tensor:
        """Place of each flat row int64[u], -1 for one that the batch does not look up."""
        rows, inverse = torch.unique(self.segment.flat, return_inverse=True)
        at = torch.empty_like(rows)
        at[inverse] = self.places.long()
        found = torch.searchsorted(rows, flat).clamp_(max=len(rows) - 1)
        return torch.where(rows[found] == flat, at[found], -1)

    @property
    def staging(self) -> set[Rows]:
        """Copies of rows on their way: set of Rows."""
        return {rows for rows in (self.fetched, self.uploaded, self.written_back)
                if rows is not None}


@dataclass(eq=False)
class BatchInFlight:
    """A batch between `prefetch` and `finish`."""

    request: Request
    batch: Batch
    marked_at: int | None = None  # first batch that was planned after this one's rows were marked
    marked: int = 0  # batches whose rows were marked before this one was planned
    wait_for: int = -1  # its bypassed rows must be in the tables before this one's rows are read
    transfers: list[GroupTransfer] = field(default_factory=list)  # one per segment, once planned
    pending: PendingBackward = field(default_factory=PendingBackward)
    resident: bool = False  # planned, with all rows in their slots
    lists: Held = field(default_factory=Held)  # memory of its plan, until its rows are in slots


class BatchWindow:
    """The batches in flight, by number. Numbers count from the first batch of the store.

    Parameters
    ----------
    followed : int
        Batches that the policy follows before the first of them has trained.
    look_ahead : int
        Batches of these that are only marked.
    """

    def __init__(self, followed: int, look_ahead: int) -> None:
        self._followed, self._look_ahead = followed, look_ahead
        self.batches: dict[int, BatchInFlight] = {}
        self.taken: deque[BatchInFlight] = deque()  # and not finished, in order
        self.submitted = self.next = self.finished = 0  # batches prefetched, taken, finished
        self.base = 0  # first batch since the directory was cleared: the device's batch 0
        self.wanted = -1  # last batch that the trainer waited for
        self.abandoning = False  # planned batches run to their end without being trained

    def submit(self, flight: BatchInFlight) -> None:
        self.batches[self.submitted] = flight
        self.submitted += 1

    def want(self, number: int) -> None:
        """Record that the trainer waits for a batch; refuse one too far ahead."""
        self.check_room(number)
        self.wanted = number

    def check_room(self, number: int) -> None:
        """Raise Error if a batch is too far ahead to be taken."""
        if number - self.finished >= self._followed - self._look_ahead:
            raise Error(f"batch {number}: {number - self.finished} batches before it have not "
                        f"trained, and this card follows {self._followed}: call step() of the "
                        f"collection's optimizer more often, beside that of the model's (an "
                        f"optimizer of PyTorch does not train rows), or eval() where nothing "
                        f"trains")

    @property
    def full(self) -> bool:
        """Whether no batch can be taken before one has trained."""
        return self.next - self.finished >= self._followed - self._look_ahead

    def take(self) -> BatchInFlight:
        """The next batch, which the trainer has from here on: BatchInFlight."""
        flight = self.batches[self.next]
        self.next += 1
        self.taken.append(flight)
        return flight

    def finish(self) -> BatchInFlight:
        """Remove the oldest batch that was taken: BatchInFlight."""
        flight = self.taken[0]
        self.batches.pop(self.finished, None)
        self.finished, _ = self.finished + 1, self.taken.popleft()
        return flight

    def withdraw(self, kept: int) -> None:
        """Forget batches from number `kept` on, none of which was planned."""
        for number in range(kept, self.submitted):
            del self.batches[number]
        self.submitted = kept

    def need_idle(self, purpose: str) -> None:
        """Raise Error if batches are in flight."""
        if self.finished != self.submitted:
            raise Error(f"{self.submitted - self.finished} batches are in flight: end the "
                        f"pipeline and step the optimizer to {purpose}")
