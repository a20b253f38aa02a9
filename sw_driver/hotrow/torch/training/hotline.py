"""Mode `hotline`: hot rows at the trainer, cold rows fetched by the device as batches need them.

Source: Hotline (ISCA 2024, arXiv 2204.05436). The device counts which rows are hot, splits each
batch in samples all of whose rows are hot and the others, and gathers the rows that the others
lack while the first part trains. Both parts belong to one optimizer step.
"""

import numpy as np
import torch
from torch import nn

from ...batch import Batch
from ...contract import MISS_FLAG, NO_SLOT
from ...errors import Error
from ..memory.rows import Rows
from ..memory.slots import SlotStorage
from .relearning import Exchange, Exchanged
from .step import Step
from .trainer import StepResult, Trainer

_BATCH_COUPLED = (nn.modules.batchnorm._BatchNorm,)
_FIRST_COLD_ROWS = 4096
_MOST_AT_ONCE = 1 << 16  # rows that become hot: their lists take little memory
_POSITION_BYTES = _SLOT_BYTES = 4
_ENTRY_BYTES = 8


class HotlineTrainer(Trainer):
    """Trains with hot rows in slots; their copies in the tables are old until `flush`.

    Call `observe` with the first batches, then `learn` once; before it every row is cold. Later,
    between steps, `plan` and `exchange` make other rows hot. The device reads the tables in place:
    between `step` and `flush` nothing else may change them.

    Parameters
    ----------
    model, tables, optimizer
        As `Trainer`. The model must treat each sample alone: BatchNorm is refused.
    device : Device
        Without tables of its own.
    hot_rows : int
        Rows to keep at the trainer, over all tables; at most the directory's slots.

    Members
    -------
    counting : bool
        Whether each step counts its lookups as `observe` does; False at first.

    Raises
    ------
    Error
        A layer that couples the samples of a batch; more hot rows than the directory holds.
    """

    def __init__(self, model, tables, optimizer, device, hot_rows):
        super().__init__(model, tables, optimizer)
        refuse_batch_coupled(model)
        if hot_rows > device.geometry.slots:
            raise Error(f"{hot_rows:,} hot rows do not fit: the card's directory holds "
                        f"{device.geometry.slots:,}")
        self.device, self.hot_rows, self.counting = device, hot_rows, False
        self.registered = [
            device.register_table(weights, name=f"table {number}", state=state)
            for number, (weights, state) in enumerate(map(tables.table, range(tables.count)))]
        self.storage = SlotStorage(device.geometry.slots, _FIRST_COLD_ROWS, tables.kind,
                                   len(tables.rows))
        self._buffers = self._register()

    def observe(self, samples):
        """Let the device count a batch's lookups."""
        return self.device.observe(self.batch(samples))

    def learn(self):
        """Take the most accessed rows into the trainer's slots: how many there are."""
        self.exchange(self.plan())
        return self.storage.count

    def plan(self, decay=0):
        """What the counters, first shifted right by `decay` places, ask to be changed: Exchange."""
        if decay:
            self.device.decay(decay)
        wanted = self.flat(self.device.harvest(self.hot_rows))
        return Exchange(self.storage.hot.numpy(), wanted.numpy())

    def exchange(self, exchange):
        """Make the wanted rows hot, as far as the directory has room for them: Exchanged."""
        leaving, arriving = map(torch.from_numpy, (exchange.leaving, exchange.arriving))
        self.bring_back(leaving)
        self.release(leaving)
        arrived = sum(map(self._install, arriving.split(_MOST_AT_ONCE)))
        return Exchanged(len(leaving), arrived, len(arriving) - arrived)

    def bring_back(self, rows):
        """Bring hot rows, flat int64[l], from their slots back to the tables."""
        where, slots = self.storage.find(rows)
        self.tables.rows.write(rows[where], *self.storage.rows.read(slots))

    def release(self, rows):
        """Free the slots of flat rows int64[l], whose values are in the tables."""
        self.device.remove(self.listed(rows))
        self.storage.empty(self.storage.find(rows)[1])

    def gather_hot(self, rows, slots):
        """Fetch flat rows int64[a] from the tables into their slots."""
        if len(rows):
            self._gather(self.listed(rows), slots.numpy()).result()

    def step(self, samples):
        split = self.split(self.batch(samples))
        cold, at = self.flat(split.misses), self._place(split)
        gathered = self.gather_cold(cold)
        step = Step(self.model, samples)
        step.run(torch.from_numpy(split.order[:split.n_popular]), self.storage.rows, at)
        gathered()
        step.run(torch.from_numpy(split.order[split.n_popular:]), self.storage.rows, at)
        self.dense_optimizer.step()
        step.apply(self.optimizer, self.storage.rows, at)
        self.write_back(cold)
        return StepResult(
            logits=step.logits.numpy(), lookups=split.lookups, hits=split.hits,
            popular=split.n_popular, rows_moved=2 * len(cold),
            link_bytes=2 * len(cold) * self.row_bytes + samples.nbytes
            + _SLOT_BYTES * split.lookups + _POSITION_BYTES * len(samples)
            + _ENTRY_BYTES * len(split.misses))

    def rehearse(self, samples):
        counting, self.counting = self.counting, False
        try:
            return self.step(samples)
        finally:
            self.counting = counting

    def split(self, batch):
        """The device's answer to which samples are popular and where each row is: Split."""
        return self.device.split(batch, observe=self.counting)

    def gather_cold(self, cold):
        """Begin to fetch flat rows int64[c] into the cold area; the result waits for them."""
        if not len(cold):
            return lambda: None
        if len(cold) > self.storage.area_rows:
            self._grow(len(cold))
        slots = self.storage.slots + np.arange(len(cold), dtype=np.uint32)
        return self._gather(self.listed(cold), slots).result

    def write_back(self, cold):
        """Bring trained cold rows, flat int64[c], from the cold area back to the tables."""
        first = self.storage.slots
        self.tables.rows.write(cold, *self.storage.rows.read(slice(first, first + len(cold))))

    def flush(self):
        """Bring hot rows from their slots back to the tables; they stay hot; return how many."""
        brought = 0
        for rows, slots in self.storage.in_slots():
            self.tables.rows.write(rows, *self.storage.rows.read(slots))
            brought += len(rows)
        return brought

    def read_rows(self, rows):
        weights, state = self.tables.rows.read(rows)
        where, slots = self.storage.find(rows)
        weights[where] = self.storage.rows.weights[slots]
        if state is not None:
            state[where] = self.storage.rows.state[slots]
        return weights, state

    def write_rows(self, rows, weights, state):
        where, slots = self.storage.find(rows)
        cold = torch.ones(len(rows), dtype=torch.bool)
        cold[where] = False
        source = Rows(weights, state)
        self.storage.rows.write(slots, *source.read(where))
        self.tables.rows.write(rows[cold], *source.read(cold))

    def batch(self, samples):
        """Samples as the device takes them."""
        if samples.lengths is None:
            return Batch.dense(samples.ids, tables=self.registered)
        return Batch.jagged(samples.ids, samples.lengths.ravel(), len(samples),
                            tables=self.registered)

    def flat(self, rows):
        """Flat rows int64[n] of a RowList; the device had no tables before, so numbers agree."""
        return self.tables.flat(rows)

    def listed(self, flat):
        """RowList of flat rows int64[n]."""
        return self.tables.locate(flat)

    def _install(self, rows):
        """Make flat rows int64[a] hot as far as there is room: how many."""
        slots = self.device.install(self.listed(rows)).slots
        held = torch.from_numpy(slots != NO_SLOT)
        arrived, slots = rows[held], torch.from_numpy(slots.astype(np.int64))[held]
        self.gather_hot(arrived, slots)
        self.storage.place(arrived, slots)
        return len(arrived)

    def _place(self, split):
        """Where in the storage each lookup's row is: int64[n]."""
        slots = torch.from_numpy(split.slots.astype(np.int64))
        return torch.where(slots & MISS_FLAG != 0, self.storage.slots + (slots & ~MISS_FLAG), slots)

    def _gather(self, rows, slots):
        weights, state = self._buffers
        return self.device.gather_async(rows, out=weights, slots=slots, state_out=state)

    def _register(self):
        """Buffers of the storage's weights and of its state, None where there is none."""
        arrays = self.storage.rows.weights, self.storage.rows.state
        return [None if array is None else self.device.register(array) for array in arrays]

    def _grow(self, cold):
        self.storage.grow(2 * cold)
        for buffer in self._buffers:
            if buffer is not None:
                self.device.unregister(buffer)
        self._buffers = self._register()


def refuse_batch_coupled(model):
    """Raise for layers whose output for a sample depends on the rest of its batch."""
    for name, layer in model.named_modules():
        if isinstance(layer, _BATCH_COUPLED):
            raise Error(f"layer {name!r} ({type(layer).__name__}) couples the samples of a batch, "
                        "and hotline trains a batch in two parts: use a layer that treats each "
                        "sample alone, such as LayerNorm")
