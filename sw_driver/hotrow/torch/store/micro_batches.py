"""A batch taken in two parts: samples whose rows are all in slots, then the others."""

from threading import RLock

import torch

from ...contract.errors import Error
from ..features.bags import lookups_of
from ..features.grouping import Request
from ..memory.slot_memory import SlotMemory
from ..optim.gradients import LocatedRows
from .in_flight import BatchInFlight, BatchWindow, GroupTransfer, PendingBackward
from .slot_map import SlotMap
from .stages import Stages


class MicroBatches:
    """Splits the batch to be taken next, in mode `hotline`; its parameters are parts of the store.

    Attributes
    ----------
    samples, popular : int
        Samples of the batches that were taken in parts, and the popular ones of them.
    waited : float
        Seconds between the trainer's request for the other samples' rows and their arrival.
    """

    def __init__(self, window: BatchWindow, stages: Stages, slot_map: SlotMap, memory: SlotMemory,
                 lock: RLock) -> None:
        self._window, self._stages, self._slot_map = window, stages, slot_map
        self._memory, self._lock = memory, lock
        self.samples = self.popular = 0
        self.waited = 0.0

    @property
    def hidden(self) -> float | None:
        """Share of the time from `collect` to `insert` in which the trainer was busy with popular
        samples; None before any row was fetched."""
        spent = sum(seconds for stage, seconds in zip(
            self._stages.stages, self._stages.seconds, strict=True) if stage.name != "plan")
        return max(0.0, 1 - self.waited / spent) if spent else None

    def split(self) -> torch.Tensor:
        """Whether each sample of the batch to be taken next finds all its rows in slots: bool[B].

        The batch must have been prefetched; its other rows may still be on their way.
        """
        number = self._window.next
        self._want(number)
        self._stages.wait(lambda: self._stages.through("plan") > number,
                          f"the plan of batch {number}")
        flight = self._window.batches[number]
        count = flight.request.bags.samples
        popular = torch.ones(count, dtype=torch.bool)
        for transfer in flight.transfers:
            segment = transfer.segment
            cold = transfer.places >= self._slot_map.storages[segment.group].slots
            bags = torch.repeat_interleave(
                torch.arange(len(segment.lengths)), segment.lengths)[cold]
            popular[bags % count] = False
        self.samples += count
        self.popular += int(popular.sum())
        return popular

    def take(self, request: Request, samples: torch.Tensor, wait: bool,
             last: bool) -> tuple[list[LocatedRows], PendingBackward]:
        """Take some samples int64[k] of the batch to be taken next.

        Parameters
        ----------
        request : Request
            Lookups of these samples.
        samples : int64[k]
            Their indices in the batch.
        wait : bool
            Whether they need rows without a slot; otherwise all of them are popular.
        last : bool
            Whether these are the batch's last samples.

        Returns
        -------
        (list of LocatedRows, PendingBackward)
        """
        number = self._window.next
        flight = self._window.batches[number]
        if not flight.request.bags.rows(samples).equals(request.bags):
            raise Error(f"these are not the samples of batch {number} that come next: call the "
                        f"collection with the samples that parts() yielded")
        if wait or last:
            asked = self._stages.clock()
            self._want(number)
            self._stages.wait(lambda: self._stages.through("insert") > number, f"batch {number}")
            self.waited += self._stages.clock() - asked
        if last:
            self._window.take()
        return [self._locate(flight, transfer, samples, wait or last)
                for transfer in flight.transfers], flight.pending

    def _locate(self, flight: BatchInFlight, transfer: GroupTransfer, samples: torch.Tensor,
                complete: bool) -> LocatedRows:
        """The rows of some samples; `complete` once all rows of the batch have arrived."""
        segment = transfer.segment
        bags = (torch.arange(segment.features)[:, None] * flight.request.bags.samples
                + samples).ravel()
        lookups = lookups_of(segment.lengths, bags)
        sums = cold = None
        if complete:
            self._memory.wait_event(transfer.insert_event)
            if transfer.sums is not None and transfer.cold is not None:
                sums, cold = transfer.sums[bags], transfer.cold[lookups]
        storage = self._slot_map.storages[segment.group]
        return LocatedRows(storage.rows, self._memory.indices(transfer.places[lookups]),
                           self._lock, sums, cold, storage.grouper, flight, transfer.bypassed)

    def _want(self, number: int) -> None:
        with self._stages.lock:
            self._window.want(number)
            self._stages.wake()
