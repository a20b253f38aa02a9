"""The golden planner: every row trains once per batch, for all slots, policies and windows."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import NO_SLOT
from hotrow_sim.golden.lookup.counters import pack_key
from hotrow_sim.golden.lookup.planner import NEVER, Planner
from hotrow_sim.golden.lookup.slot_table import POLICIES, Slots
from hotrow_sim.golden.training_pipeline import StageOffsets, TrainingPipeline, reference

TINY = preset("tiny")  # 256 slots
STARVED = replace(TINY, name="starved", directory_sets=16, directory_partitions=2)  # 64
OFFSETS = (StageOffsets(), StageOffsets(1, 2, 3), StageOffsets(1, 1, 1), StageOffsets(2, 3, 6))
ONE_CHOICE = replace(TINY, name="one-choice", directory_choices=1, stamp_bits=4)


class MostRecent(Slots):
    """Evicts the most recently used row, which is needed soonest."""

    def eviction_rank(self, slot):
        return -self.last_used[slot]


def worst(config):
    planner = Planner(config)
    planner.state = MostRecent(config)
    return planner


def batches(seed, count=40, lookups=120, rows=150, tables=3):
    """Skewed lookups with duplicates: lower row numbers are more frequent."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        row = (rows * rng.random(lookups) ** 2.5).astype(np.int64)
        made.append((rng.integers(0, tables, lookups), row, np.zeros(lookups, np.int64),
                     np.zeros(lookups, np.int64)))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("config", [TINY, STARVED, ONE_CHOICE], ids=lambda config: config.name)
@pytest.mark.parametrize("seeds", [(0,), pytest.param((1, 2, 3), marks=pytest.mark.long)])
def test_training_equals_training_without_slots(seeds, config, policy):
    for seed in seeds:
        steps = batches(seed)
        for offsets in OFFSETS:
            for order in ("cit", "tic"):
                if order == "tic" and offsets.insert == offsets.train:
                    continue  # INSERT must precede TRAIN
                schedule = TrainingPipeline(Planner(config, policy), steps, offsets, order=order)
                assert schedule.run() == reference(config, steps), (seed, offsets, order)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cleared_planner_equals_one_that_was_made(policy):
    made, cleared = (Planner(STARVED, policy) for _ in range(2))
    for number, (table, row, *partition) in enumerate(batches(3)):
        cleared.plan(number, table, row, *partition, counts=row)
        cleared.mark(number + 1, table, row)
        cleared.retire(number)
    cleared.clear()
    for one, other in ((cleared, made), (cleared.state, made.state)):
        for name, value in vars(other).items():
            assert name in ("state", "_directory") or vars(one)[name] == value, name


@pytest.mark.slow
@pytest.mark.parametrize("window", ["past", "future"])
def test_either_window_one_shorter_breaks_training(window):
    """With the worst order of the stages of a step, and the worst victims."""
    whole = StageOffsets()
    shorter = {window: getattr(whole, window) - 1}
    wrong = 0
    for seed in range(20):
        steps = batches(seed, lookups=40)
        kept = reference(TINY, steps)
        assert TrainingPipeline(worst(TINY), steps, whole).run() == kept, seed
        wrong += TrainingPipeline(worst(TINY), steps, whole, **shorter).run() != kept
    assert wrong > 10


class Forgetful:
    """A bypass table without entries."""

    def __len__(self):
        return 1

    def __getitem__(self, entry):
        return NEVER

    def __setitem__(self, entry, batch):
        pass


def test_wait_for_protects_a_bypassed_row():
    """Without `wait_for` the next batch reads the row before its write-back."""
    steps = batches(1, rows=60)
    schedule = TrainingPipeline(Planner(STARVED, "lru"), steps)
    assert schedule.run() == reference(STARVED, steps) and schedule.stalls
    careless = TrainingPipeline(Planner(STARVED, "lru"), steps)
    careless.planner._bypassed_by = Forgetful()
    assert careless.run() != reference(STARVED, steps) and not careless.stalls


@pytest.mark.parametrize("policy", POLICIES)
def test_a_plan_is_consistent_and_evicts_no_held_row(policy):
    planner, steps = Planner(STARVED, policy), batches(3)
    resident, needed = {}, {}
    for batch, step in enumerate(steps):
        for coming in range(batch, min(batch + 3, len(steps))):
            planner.mark(coming, *steps[coming][:2])
            for key in set(pack_key(STARVED, *steps[coming][:2]).tolist()) & set(resident):
                needed[resident[key]] = max(needed.get(resident[key], NEVER), coming)
        planner.retire(batch - 4) if batch >= 4 else None
        plan = planner.plan(batch, *step)
        keys = pack_key(STARVED, *step[:2]).tolist()
        assert plan.unique == len(set(keys)) == plan.hits + len(plan.fills) + len(plan.bypassed)
        assert list(Counter(plan.bypassed).values()) == [1] * len(plan.bypassed)
        for slot, key, dirty in plan.evictions:
            assert dirty and resident.pop(key) == slot
            assert needed.get(slot, NEVER) <= planner.state.retired, (batch, slot)
        for slot, key in plan.fills:
            assert slot not in resident.values() and key not in resident
            resident[key] = slot
            needed[slot] = batch
        for key, slot in zip(keys, plan.slots.tolist(), strict=True):
            assert slot == resident.get(key, NO_SLOT)
            if slot != NO_SLOT:
                needed[slot] = max(needed[slot], batch)


def test_nothing_is_bypassed_while_the_window_has_room():
    """Twice as many slots as rows of the window, with two choices."""
    config = replace(TINY, name="roomy", directory_sets=512, directory_ways=8)
    rng = np.random.default_rng(5)
    steps = []
    for _ in range(30):
        row = rng.integers(0, 1 << 20, 680)
        steps.append((row % 26, row, np.zeros(680, np.int64), np.zeros(680, np.int64)))
    planner = Planner(config)
    for batch, step in enumerate(steps):
        for coming in range(batch, min(batch + 3, len(steps))):
            planner.mark(coming, *steps[coming][:2])
        if batch >= 4:
            planner.retire(batch - 4)
        assert not planner.plan(batch, *step).bypassed


def test_policies_choose_their_victims():
    """The victim in one set of four rows."""
    config = replace(TINY, name="set", directory_choices=1, directory_ways=4)
    rows = same_set(config, 5)

    def left(policy, planned, counts=(0,) * 5, **options):
        planner = Planner(config, policy, **options)
        for batch, row in enumerate([*range(4), *planned, 4]):
            planner.retire(batch - 1) if batch else None
            plan = planner.plan(batch, [0], [rows[row]], [0], [0], [counts[row]])
        return [rows.index(int(key)) for _, key, _ in plan.evictions], plan.bypassed

    assert left("lru", [0, 1]) == ([2], [])
    assert left("rrip", [0, 2]) == ([1], [])
    assert left("lfu", [], (5, 3, 2, 4, 1)) == ([2], [])
    assert left("freq", [], (5, 1, 2, 4, 3)) == ([1], [])
    assert left("freq", [], (5, 3, 2, 4, 1), admission=True) == ([], [rows[4]])
    assert left("freq", [], (5, 3, 2, 4, 2), admission=True) == ([2], [])


def same_set(config, count):
    """Rows of table 0 in the set of row 0."""
    planner = Planner(config)
    rows = np.arange(1 << 14)
    zeros = np.zeros(len(rows), np.int64)
    (starts,) = planner._directory.set_starts(zeros, rows, zeros, zeros)
    return np.flatnonzero(np.array(starts) == starts[0])[:count].tolist()


@pytest.mark.parametrize("pause, leaves", [(1, 1), (3, 0)])
def test_sweeps_age_a_row_that_was_used_long_ago(pause, leaves):
    """Row 0 is used twice, row 1 follows `pause` sweeps later, then row 2."""
    config = replace(TINY, name="set", directory_choices=1, directory_ways=2, stamp_bits=4)
    rows = same_set(config, 3)
    elsewhere = next(row for row in range(100) if row not in same_set(config, 20))
    planner, gone = Planner(config, "rrip"), []
    planned = [rows[0]] * 2 + [elsewhere] * (pause * config.sweep_batches) + rows[1:]
    for batch, row in enumerate(planned):
        planner.retire(batch - 1) if batch else None
        gone += [key for _, key, _ in planner.plan(batch, [0], [row], [0], [0]).evictions]
    assert gone == [rows[leaves]]


def test_only_dirty_rows_are_written_back():
    planner = Planner(STARVED, writes=False)
    evictions = []
    for batch, step in enumerate(batches(2)):
        planner.mark(batch, *step[:2])
        planner.retire(batch - 1) if batch else None
        evictions += planner.plan(batch, *step).evictions
    assert evictions and not any(dirty for *_, dirty in evictions)
    assert planner.state.flush() == []


def test_order_of_batches():
    planner, (step, *_) = Planner(TINY), batches(0)
    planner.plan(3, *step)
    with pytest.raises(ValueError, match="expected batch 4 after batch 3, not 3"):
        planner.plan(3, *step)
    with pytest.raises(ValueError, match="the last one that was planned, not 4"):
        planner.retire(4)
