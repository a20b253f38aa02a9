"""Mode `hotline` with cold rows that stay where they are: the card pools and updates them.

Of a bag with cold rows the card sends their sum, to which the trainer adds the bag's hot rows; back
goes the bag's gradient, and the card takes the step on each cold row. So a bag crosses the link
once each way, however many cold rows it has. A bag is summed in another order than the reference's,
and Adagrad's mean likewise: steps agree within the tolerance of the check.
"""

import numpy as np
import torch

from ...contract import MISS_FLAG
from ...errors import Error
from ...memory import empty
from ...results import RowList
from .hotline import HotlineTrainer
from .step import Step
from .trainer import StepResult

_LENGTH_BYTES, _ENTRY_BYTES, _NUMBER_BYTES = 2, 8, 4
_POSITION_BYTES = _SLOT_BYTES = 4


class PooledTrainer(HotlineTrainer):
    """Trains with hot rows in slots, and lets the card pool and update cold rows in the tables.

    Parameters
    ----------
    As of `HotlineTrainer`.

    Raises
    ------
    Error
        As `HotlineTrainer`; a card without arithmetic.
    """

    def __init__(self, model, tables, optimizer, device, hot_rows):
        if not device.geometry.arithmetic:
            raise Error("this card has no arithmetic, and cold rows are to be pooled on the card: "
                        "gather them (--cold gathered), or take a card built with arithmetic=True")
        super().__init__(model, tables, optimizer, device, hot_rows)
        self._sums = self._gradients = None  # a row per bag: of its cold rows, of the loss

    def step(self, samples):
        split = self.split(self.batch(samples))
        step = Step(self.model, samples)
        self._make_room(len(step.lengths))
        sums = torch.from_numpy(self._sums[:len(step.lengths)]).zero_()
        step.gradients = torch.from_numpy(self._gradients[:len(step.lengths)]).zero_()

        slots = torch.from_numpy(split.slots.astype(np.int64))
        cold = slots & MISS_FLAG != 0
        number = split.slots[cold.numpy()] & np.uint32(MISS_FLAG - 1)
        rows = RowList(split.misses.table[number], split.misses.row[number])
        bags = torch.repeat_interleave(torch.arange(len(step.lengths)), step.lengths)
        missing, lengths = torch.unique_consecutive(bags[cold], return_counts=True)
        pooled = self.device.pool_async(
            rows, lengths, out=self._sums, slots=missing) if len(rows) else None
        # The first row of the cold area is never written: zeros, in the place of each cold row.
        at = torch.where(cold, self.storage.slots, slots)
        step.run(torch.from_numpy(split.order[:split.n_popular]), self.storage.rows, at)
        if pooled is not None:
            pooled.result()
        step.run(torch.from_numpy(split.order[split.n_popular:]), self.storage.rows, at, sums)
        self.dense_optimizer.step()
        step.apply(self.optimizer, self.storage.rows, at, ~cold)
        if len(rows):
            self.device.update(
                rows, self._gradients, self.optimizer.lr, optimizer=self.optimizer.name,
                eps=getattr(self.optimizer, "eps", 0.0), slots=bags[cold])
        return StepResult(
            logits=step.logits.numpy(), lookups=split.lookups, hits=split.hits,
            popular=split.n_popular, rows_moved=2 * len(missing),
            link_bytes=self._link_bytes(samples, split, len(rows), len(missing)))

    def _link_bytes(self, samples, split, cold, bags):
        """What crosses: bags and gradients, the batch and what was told of it, and the lists of
        both commands."""
        listed = ((_ENTRY_BYTES + _NUMBER_BYTES) * cold + _ENTRY_BYTES * len(split.misses)
                  + _LENGTH_BYTES * (bags + len(split.misses)) + _NUMBER_BYTES * bags)
        return (2 * bags * 4 * self.tables.dim + samples.nbytes + _SLOT_BYTES * split.lookups
                + _POSITION_BYTES * len(samples) + _ENTRY_BYTES * len(split.misses) + listed)

    def _make_room(self, bags):
        """Arrays with a row for each bag, where the card finds them."""
        if self._sums is not None and len(self._sums) >= bags:
            return
        for held in self._held if self._sums is not None else ():
            self.device.unregister(held)
        self._sums, self._gradients = (
            empty((bags, self.tables.dim), np.float32) for _ in range(2))
        self._held = [self.device.register(each) for each in (self._sums, self._gradients)]
