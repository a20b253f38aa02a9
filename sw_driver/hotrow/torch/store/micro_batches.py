"""A batch taken in two parts: samples whose rows are all in slots, then the others."""

import torch

from ...errors import Error
from ..features.bags import lookups_of
from .base import Placed


class MicroBatches:
    """Part of `CachedStore`, for mode `hotline`.

    Members
    -------
    parted : Counter
        Of the batches taken in parts: `samples`, those that were `popular`, and `seconds` from when
        the trainer asked for the rows of the others until it had them.
    """

    @property
    def waiting_samples(self):
        """Samples of the batch to be taken next."""
        return self._batches[self._next].request.bags.samples

    def popular(self):
        """Whether each sample of the batch to be taken next finds all its rows in slots: bool[B].

        It must have been prefetched; its rows without a slot may still be on their way.
        """
        number = self._next
        self._want(number)
        self.stages.wait(lambda: self.stages.through("plan") > number,
                         f"the plan of batch {number}")
        bags = self._batches[number].request.bags
        popular = torch.ones(bags.samples, dtype=torch.bool)
        for part in self._batches[number].parts:
            cold = part.slots >= self.storages[part.segment.group].slots
            bag = torch.repeat_interleave(
                torch.arange(len(part.segment.lengths)), part.segment.lengths)[cold]
            popular[bag % bags.samples] = False
        self.parted.update(samples=len(popular), popular=int(popular.sum()))
        return popular

    @property
    def hidden(self):
        """Share of the time of bringing rows, from `collect` to `insert`, in which the trainer was
        busy with popular samples; None before any was brought."""
        spent = sum(seconds for stage, seconds in zip(
            self.stages.stages, self.stages.seconds, strict=True) if stage.name != "plan")
        return max(0.0, 1 - self.parted["seconds"] / spent) if spent else None

    def take_part(self, request, samples, wait, last):
        """Take some samples int64[k] of the batch to be taken next; the others come after.

        Parameters
        ----------
        request : Request
            Of these samples.
        samples : int64[k]
            Their places in the batch.
        wait : bool
            For the rows without a slot; else all samples must be `popular`.
        last : bool
            Whether nothing of the batch is left.
        """
        number = self._next
        flight = self._batches[number]
        if not same_bags(flight.request.bags.rows(samples), request.bags):
            raise Error(f"these are not the samples of batch {number} that were to come next")
        if wait or last:
            asked = self.stages.clock()
            self._arrive(number)
            self.parted["seconds"] += self.stages.clock() - asked
        if last:
            self._next += 1
            self._taken.append(flight)
        placed, count = [], flight.request.bags.samples
        for part in flight.parts:
            bags = (torch.arange(part.segment.features)[:, None] * count + samples).ravel()
            at = part.slots if part.at is None else part.at
            at = at[lookups_of(part.segment.lengths, bags)]
            if wait or last:
                self.slot_memory.after(part.arrived)
            placed.append(Placed(self.storages[part.segment.group].rows, self.slot_memory.index(at),
                                 self.lock))
        return placed, flight.open


def same_bags(one, other):
    """Whether two Bags look up the same."""
    return (one.tables == other.tables and torch.equal(one.ids, other.ids)
            and torch.equal(one.lengths, other.lengths))
