"""Batches between `prefetch` and their optimizer step."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch

from ...errors import Error
from ..features.grouping import Request, Segment
from ..memory.rows import Rows
from .base import PendingBackward


@dataclass(eq=False)
class GroupTransfer:
    """The rows of one group that a batch needs, and their way to the slots.

    Attributes
    ----------
    slots : int64[n]
        Slot of each lookup; the group's slots + k for the k-th row without one.
    fills, victims : int64[f], int64[v]
        Flat rows to fetch, and trained rows that leave their slots.
    fill_slots, victim_slots : int64[f], int64[v]
        Numbered as `slots`.
    bypassed : int
        Rows without a slot.
    fetched, written_back : Rows or None
        Contents of `fills` and `victims` in host memory, on their way.
    uploaded : Rows or None
        Contents of `fills` in the memory of the slots, on their way.
    read_event, insert_event : event
        Of the slots' memory: victims were read; fills are in their slots.
    bypass_places : int64[bypassed]
        Places of the bypass area.
    places : int64[n] or None
        Place in the storage of each lookup's row; None before the rows are there.
    device_places : int64[n] or None
        `places` in the memory of the slots.
    cold : bool[n], optional
        Lookups that the card pools, in mode hotline with cold="pooled".
    pooling : Future or None
        Of POOL, while it runs.
    sums : float32[bags, D], optional
        The bags' cold lookups, pooled by the card.
    """

    segment: Segment
    slots: torch.Tensor
    fills: torch.Tensor
    fill_slots: torch.Tensor
    victims: torch.Tensor
    victim_slots: torch.Tensor
    bypassed: int
    fetched: Rows | None = None
    written_back: Rows | None = None
    uploaded: Rows | None = None
    read_event: Any = None
    insert_event: Any = None
    bypass_places: torch.Tensor | None = None
    places: torch.Tensor | None = None
    device_places: torch.Tensor | None = None
    cold: torch.Tensor | None = None
    pooling: Any = None
    sums: torch.Tensor | None = None

    def placed(self, slots, first):
        """Places in the storage of slots int64[k]; from `first` on they number bypassed rows."""
        if self.bypass_places is None or not self.bypassed:
            return slots
        area = self.bypass_places[(slots - first).clamp(0, self.bypassed - 1)]
        return torch.where(slots < first, slots, area)

    def find(self, flat):
        """Place of each flat row int64[u], -1 for one that the batch does not look up."""
        rows, inverse = torch.unique(self.segment.flat, return_inverse=True)
        at = torch.empty_like(rows)
        assert self.places is not None, "the batch was taken, so that its rows have places"
        at[inverse] = self.places
        found = torch.searchsorted(rows, flat).clamp_(max=len(rows) - 1)
        return torch.where(rows[found] == flat, at[found], -1)

    @property
    def staging(self):
        """Copies of rows on their way: set of Rows."""
        return {self.fetched, self.uploaded, self.written_back} - {None}


@dataclass(eq=False)
class BatchInFlight:
    """A batch between `prefetch` and `finish`.

    Attributes
    ----------
    batch : Batch
        As the device takes it.
    marked_at : int or None
        First batch that was planned after this one's rows were marked.
    marked : int
        Batches whose rows were marked before this one was planned.
    wait_for : int
        Batch whose bypassed rows must be in the tables before this one's rows are read, or -1.
    transfers : list of GroupTransfer
        One per segment, once planned.
    pending : PendingBackward
    """

    request: Request
    batch: Any
    marked_at: int | None = None
    marked: int = 0
    wait_for: int = -1
    transfers: list[GroupTransfer] = field(default_factory=list)
    pending: PendingBackward = field(default_factory=PendingBackward)


class BatchWindow:
    """The batches in flight, by number. Numbers count from the first batch of the store.

    Parameters
    ----------
    followed : int
        Batches that the policy follows without their having trained.
    look_ahead : int
        Batches of these that are marked only.

    Attributes
    ----------
    batches : dict of int to BatchInFlight
    taken : deque of BatchInFlight
        Taken and not finished, in order.
    submitted, next, finished : int
        Batches that were prefetched, taken, finished.
    base : int
        First batch since the device's directory was cleared, which is its batch 0.
    wanted : int
        Last batch that the trainer waited for.
    abandoning : bool
        Whether planned batches run to their end without being trained.
    """

    def __init__(self, followed, look_ahead):
        self._followed, self._look_ahead = followed, look_ahead
        self.batches: dict[int, BatchInFlight] = {}
        self.taken: deque[BatchInFlight] = deque()
        self.submitted = self.next = self.finished = self.base = 0
        self.wanted, self.abandoning = -1, False

    def submit(self, flight):
        self.batches[self.submitted] = flight
        self.submitted += 1

    def want(self, number):
        """Record that the trainer waits for a batch.

        Raises
        ------
        Error
            Too many batches before it have not trained.
        """
        if number - self.finished >= self._followed - self._look_ahead:
            raise Error(f"batch {number}: {number - self.finished} batches before it have not "
                        f"trained, and this card follows {self._followed}: call optimizer.step() "
                        f"more often, or eval() where nothing trains")
        self.wanted = number

    def take(self):
        """The next batch, which the trainer has from here on: BatchInFlight."""
        flight = self.batches[self.next]
        self.next += 1
        self.taken.append(flight)
        return flight

    def finish(self):
        """Remove the oldest batch that was taken: BatchInFlight."""
        del self.batches[self.finished]
        self.finished += 1
        return self.taken.popleft()

    def withdraw(self, kept):
        """Forget batches from number `kept` on, none of which was planned."""
        for number in range(kept, self.submitted):
            del self.batches[number]
        self.submitted = kept

    def need_idle(self, purpose):
        """Raise Error if batches are in flight."""
        if self.finished != self.submitted:
            raise Error(f"{self.submitted - self.finished} batches are in flight: end the "
                        f"pipeline and step the optimizer to {purpose}")
