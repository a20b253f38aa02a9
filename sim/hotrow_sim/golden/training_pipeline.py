"""Model of a training pipeline around a `Planner`: what rows hold when stages overlap.

Source: the stages and hold windows of ScratchPipe (ISCA 2022, arXiv 2205.04702), section 4.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from .lookup.counters import pack_key
from .lookup.planner import NEVER


@dataclass(frozen=True)
class Offsets:
    """Steps from the plan of a batch to its other stages; one batch is in each stage.

    A victim is read by `collect` and lands in its table by `insert`, so that an update is lost
    unless the `past` batches before are held, and a row is read too early unless the `future` ones
    are: whatever the order of the stages of one step.
    """

    collect: int = 1
    insert: int = 3
    train: int = 4

    @property
    def past(self) -> int:
        return self.train - self.collect

    @property
    def future(self) -> int:
        return self.insert - self.collect


def trained(value, batch):
    """What a row holds after it was trained once more; tells every order and every loss."""
    return (value * 1_000_003 + batch + 1) % (1 << 61)


class Schedule:
    """Trains batches through a planner's slots, stage by stage.

    COLLECT reads victims from their slots and rows from the tables; INSERT writes victims to the
    tables and rows to the slots; TRAIN updates slots and bypassed rows, which then go back to the
    tables. COLLECT, and the plans behind it, wait for the write-backs that the plan tells.

    Parameters
    ----------
    planner : Planner
    batches : list of (table, row, parts_log2, part)
        Arguments of `Planner.plan`.
    offsets : Offsets
    past, future : int, optional
        Batches held before and after the planned one, in place of those of `offsets`.
    order : str
        In which the stages of a step follow one another, of the letters c, i and t.

    Members
    -------
    tables : dict
        Value by key; zero to begin with.
    stalls : int
        Steps in which COLLECT waited.
    """

    def __init__(self, planner, batches, offsets=None, past=None, future=None, order="cit"):
        self.planner, self.batches = planner, batches
        self.offsets = offsets or Offsets()
        self.past = self.offsets.past if past is None else past
        self.future = self.offsets.future if future is None else future
        self.order, self.tables, self.slots, self.plans = order, {}, {}, []
        self.stalls, self._landed, self._marked = 0, NEVER, 0
        self._rows = {}  # per batch: what COLLECT has read

    def run(self):
        """Train all batches and write dirty rows back; return `tables`."""
        # Batch in each step between the plan and the last stage; None is a gap.
        moving = deque([None] * (self.offsets.train + 1), self.offsets.train + 1)
        step = 0
        while len(self.plans) < len(self.batches) or any(each is not None for each in moving):
            step += 1
            assert step < 10 * (len(self.batches) + 10), "the schedule stands still"
            moving = self._step(moving)
        for slot, key in self.planner.state.flush():
            self.tables[key] = self.slots[slot]
        return self.tables

    def _step(self, moving):
        """Plan one batch and move all others a stage on, or those behind COLLECT alone."""
        at = list(moving)
        waiting = at[self.offsets.collect - 1]
        if waiting is not None and self.plans[waiting].wait_for > self._landed:
            self.stalls += 1
            held, at = at[:self.offsets.collect], at[self.offsets.collect:]
            at = [*held, None, *at[:-1]]
        else:
            at = [self._plan(), *at[:-1]]
        stages = {"c": (self.offsets.collect, self._collect),
                  "i": (self.offsets.insert, self._insert),
                  "t": (self.offsets.train, self._train)}
        for letter in self.order:
            place, stage = stages[letter]
            if at[place] is not None:
                stage(at[place])
        return deque(at)

    def _plan(self):
        batch = len(self.plans)
        if batch == len(self.batches):
            return None
        last = min(batch + self.future + 1, len(self.batches))
        for coming in range(self._marked, last):
            self.planner.mark(coming, *self.batches[coming][:2])
        self._marked = max(self._marked, last)
        if batch - self.past - 1 >= 0:
            self.planner.retire(batch - self.past - 1)
        self.plans.append(self.planner.plan(batch, *self.batches[batch]))
        return batch

    def _collect(self, batch):
        plan = self.plans[batch]
        self._rows[batch] = {
            "victims": {key: self.slots[slot] for slot, key, dirty in plan.evictions if dirty},
            "fills": {slot: self.tables.get(key, 0) for slot, key in plan.fills},
            "bypassed": {key: self.tables.get(key, 0) for key in plan.bypassed},
        }

    def _insert(self, batch):
        self.tables.update(self._rows[batch]["victims"])
        self.slots.update(self._rows[batch]["fills"])

    def _train(self, batch):
        table, row = self.batches[batch][:2]
        keys, plan = pack_key(self.planner.config, table, row), self.plans[batch]
        bypassed = self._rows.pop(batch)["bypassed"]
        for key, slot in dict(zip(keys.tolist(), plan.slots.tolist())).items():
            if key in bypassed:
                bypassed[key] = trained(bypassed[key], batch)
            else:
                self.slots[slot] = trained(self.slots[slot], batch)
        self.tables.update(bypassed)
        self._landed = batch


def reference(config, batches):
    """The tables after training without slots, in order."""
    tables = {}
    for batch, (table, row, *_) in enumerate(batches):
        for key in np.unique(pack_key(config, table, row)).tolist():
            tables[key] = trained(tables.get(key, 0), batch)
    return tables
