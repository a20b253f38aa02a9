"""Model of a training pipeline around a `Planner`: the values of rows when stages overlap.

Source: the stages and hold windows of ScratchPipe (ISCA 2022, arXiv 2205.04702), section 4.
"""

from dataclasses import dataclass

import numpy as np

from .lookup.counters import pack_key
from .lookup.planner import NEVER


@dataclass(frozen=True)
class StageOffsets:
    """Steps from the plan of a batch to its other stages, with one batch per stage.

    `collect` reads a victim and `insert` writes it to its table. If the `past` batches before the
    planned one were not held, an update could be lost; if the `future` ones were not held, a row
    could be read before its write-back. This is so for every order of the stages of one step.
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


class StageOrder:
    """Calls `mark`, `retire`, `plan`, `collect`, `insert` and `train` of a subclass for every batch
    in pipeline order.

    COLLECT, and the stages before it, stall until the batch that `waits_for` returns has trained.

    Parameters
    ----------
    count : int
        Batches.
    offsets : StageOffsets, optional
    past, future : int, optional
        Batches held before and after the planned one, instead of those of `offsets`.
    order : str
        Order of the stages in a step, of the letters c, i and t.
    stall : bool
        COLLECT stalls; if False it does not wait.

    Attributes
    ----------
    stalls : int
        Steps in which COLLECT stalled.
    """

    def __init__(self, count, offsets=None, past=None, future=None, order="cit", stall=True):
        self.count, self.offsets = count, offsets or StageOffsets()
        self.past = self.offsets.past if past is None else past
        self.future = self.offsets.future if future is None else future
        self._order, self._stall, self.stalls = order, stall, 0
        self._planned, self._trained, self._marked = 0, NEVER, 0

    def run(self):
        """Process all batches."""
        # The batch of each step from the plan to the last stage; None is a bubble.
        moving = [None] * (self.offsets.train + 1)
        for _ in range(10 * (self.count + 10)):
            moving = self._step(moving)
            if self._planned == self.count and not any(each is not None for each in moving):
                return
        raise AssertionError("the pipeline does not advance")

    def _step(self, moving):
        first = self.offsets.collect
        waiting = moving[first - 1]
        if self._stall and waiting is not None and self.waits_for(waiting) > self._trained:
            self.stalls += 1
            moving = [*moving[:first], None, *moving[first:-1]]
        else:
            moving = [self._plan_next(), *moving[:-1]]
        stages = {"c": (first, self.collect), "i": (self.offsets.insert, self.insert),
                  "t": (self.offsets.train, self._train)}
        for letter in self._order:
            place, stage = stages[letter]
            if moving[place] is not None:
                stage(moving[place])
        return moving

    def _plan_next(self):
        batch = self._planned
        if batch == self.count:
            return None
        last = min(batch + self.future + 1, self.count)
        for coming in range(self._marked, last):
            self.mark(coming)
        self._marked = max(self._marked, last)
        if batch > self.past:
            self.retire(batch - self.past - 1)
        self.plan(batch)
        self._planned += 1
        return batch

    def _train(self, batch):
        self.train(batch)
        self._trained = batch


def trained(value, batch):
    """Value of a row after one more training step; every lost or reordered step changes it."""
    return (value * 1_000_003 + batch + 1) % (1 << 61)


class TrainingPipeline(StageOrder):
    """Trains batches in a planner's slots, stage by stage.

    COLLECT reads victims from their slots and rows from the tables. INSERT writes victims to the
    tables and rows to the slots. TRAIN updates slots and bypassed rows, and writes the bypassed
    rows back to the tables.

    Parameters
    ----------
    planner : Planner
    batches : list of (table, row, parts_log2, part)
        Arguments of `Planner.plan`.
    options
        As for `StageOrder`.

    Attributes
    ----------
    tables : dict of int to int
        Value by key, initially 0.
    plans : list of Plan
    """

    def __init__(self, planner, batches, offsets=None, past=None, future=None, order="cit"):
        super().__init__(len(batches), offsets, past, future, order)
        self.planner, self.batches = planner, batches
        self.tables, self.slots, self.plans = {}, {}, []
        self._rows = {}  # per batch: the rows that COLLECT read

    def run(self):
        """Train all batches and write dirty rows back; return `tables`."""
        super().run()
        for slot, key in self.planner.state.flush():
            self.tables[key] = self.slots[slot]
        return self.tables

    def waits_for(self, batch):
        return self.plans[batch].wait_for

    def mark(self, batch):
        self.planner.mark(batch, *self.batches[batch][:2])

    def retire(self, batch):
        self.planner.retire(batch)

    def plan(self, batch):
        self.plans.append(self.planner.plan(batch, *self.batches[batch]))

    def collect(self, batch):
        plan = self.plans[batch]
        self._rows[batch] = {
            "victims": {key: self.slots[slot] for slot, key, dirty in plan.evictions if dirty},
            "fills": {slot: self.tables.get(key, 0) for slot, key in plan.fills},
            "bypassed": {key: self.tables.get(key, 0) for key in plan.bypassed},
        }

    def insert(self, batch):
        self.tables.update(self._rows[batch]["victims"])
        self.slots.update(self._rows[batch]["fills"])

    def train(self, batch):
        table, row = self.batches[batch][:2]
        keys, plan = pack_key(self.planner.config, table, row), self.plans[batch]
        bypassed = self._rows.pop(batch)["bypassed"]
        for key, slot in dict(zip(keys.tolist(), plan.slots.tolist(), strict=True)).items():
            if key in bypassed:
                bypassed[key] = trained(bypassed[key], batch)
            else:
                self.slots[slot] = trained(self.slots[slot], batch)
        self.tables.update(bypassed)


def reference(config, batches):
    """The tables after training in order without slots."""
    tables = {}
    for batch, (table, row, *_) in enumerate(batches):
        for key in np.unique(pack_key(config, table, row)).tolist():
            tables[key] = trained(tables.get(key, 0), batch)
    return tables
