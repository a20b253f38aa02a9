"""What a flipped bit of a plan's lists does to training, on the golden models.

    python -m tests.support.bit_flips --flips 300

Each run trains through slots that a planner gives, flips one bit of a plan, and compares the tables
with training without slots. A flip is harmless, or silent: the tables differ and nothing was
reported; or refused: the card reports a row or slot that does not exist.
"""

import argparse
from collections import Counter
from dataclasses import replace

import numpy as np
from hotrow_rtl.config import log2, preset
from hotrow_sim.golden.lookup.counters import pack_key
from hotrow_sim.golden.lookup.planner import Planner
from hotrow_sim.golden.lookup.slot_table import POLICIES
from hotrow_sim.golden.training_pipeline import TrainingPipeline, reference

CARD = replace(preset("tiny"), name="flipped", directory_sets=32, directory_partitions=2)
ROWS, LOOKUPS, BATCHES, TABLES = 400, 24, 40, 2
HARMLESS, SILENT, REFUSED = "harmless", "silent", "refused"


class Refused(Exception):
    """The card reports ROW_OUT_OF_RANGE or REGION."""


class FlippedPipeline(TrainingPipeline):
    """A pipeline in which `flip(pipeline, plan)` changes the state after the plan of a batch."""

    def __init__(self, planner, batches, at, flip):
        super().__init__(planner, batches)
        self.at, self.flip = at, flip

    def plan(self, batch):
        super().plan(batch)
        if batch == self.at:
            self.flip(self.planner.state, self.plans[-1])

    def collect(self, batch):
        plan = self.plans[batch]
        for slot, key in [*plan.fills, *((slot, key) for slot, key, _ in plan.evictions)]:
            self._require(slot, key)
            self.slots.setdefault(slot, 0)
        super().collect(batch)

    def train(self, batch):
        bypassed = self._rows[batch]["bypassed"]
        keys = pack_key(self.planner.config, *self.batches[batch][:2]).tolist()
        for key, slot in zip(keys, self.plans[batch].slots.tolist(), strict=True):
            if key not in bypassed:
                self._require(slot, key)
                self.slots.setdefault(slot, 0)
        super().train(batch)

    def _require(self, slot, key):
        config = self.planner.config
        most = config.slots + LOOKUPS  # bypassed rows have the numbers after the last slot
        if slot >= most or key % (1 << config.row_width) >= ROWS or (
                key >> config.row_width) >= TABLES:
            raise Refused


def batches(seed):
    """Skewed random batches of two tables."""
    rng = np.random.default_rng([seed, 9])
    table = rng.integers(TABLES, size=(BATCHES, LOOKUPS))
    row = (ROWS * rng.random((BATCHES, LOOKUPS)) ** 2).astype(np.uint64)
    zero = np.zeros(LOOKUPS, np.int64)
    return [(table[each], row[each], zero, zero) for each in range(BATCHES)]


def _slots(rng, state, plan):
    bit = 1 << int(rng.integers(state.config.slot_word_width))
    plan.slots[rng.integers(len(plan.slots))] ^= bit


def _entry(name, field, width):
    def flip(rng, state, plan):
        entries = getattr(plan, name)
        if entries:
            at = int(rng.integers(len(entries)))
            entry = list(entries[at])
            entry[field] ^= 1 << int(rng.integers(width(state.config)))
            entries[at] = tuple(entry)
    return flip


def _slot_width(config):
    return log2(config.slots) + 1


def _row_width(config):
    return config.row_width


FLIPS = {
    "slot of a lookup": _slots,
    "slot of a fill": _entry("fills", 0, _slot_width),
    "row of a fill": _entry("fills", 1, _row_width),
    "slot of a victim": _entry("evictions", 0, _slot_width),
    "row of a victim": _entry("evictions", 1, _row_width),
}


def effect(kind, seed):
    """Effect of one random flip of that kind."""
    rng = np.random.default_rng([seed, 11])
    steps, policy = batches(seed), list(POLICIES)[seed % len(POLICIES)]
    pipeline = FlippedPipeline(
        Planner(CARD, policy), steps, int(rng.integers(5, BATCHES - 5)),
        lambda state, plan: FLIPS[kind](rng, state, plan))
    try:
        tables = pipeline.run()
    except Refused:
        return REFUSED
    return HARMLESS if tables == reference(CARD, steps) else SILENT


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.support.bit_flips",
                                     description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=300, help="of each kind")
    count = parser.parse_args(arguments).flips
    print(f"| flipped bit | {HARMLESS} | {SILENT} | {REFUSED} |\n|---|---|---|---|")
    for kind in FLIPS:
        found = Counter(effect(kind, seed) for seed in range(count))
        print(f"| {kind} | {found[HARMLESS]} | {found[SILENT]} | {found[REFUSED]} |")


if __name__ == "__main__":
    main()
