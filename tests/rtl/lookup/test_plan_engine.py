"""The lookup engines of a card with a planner beside the model of the whole card."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl import config
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import NO_BATCH, BatchFlag, Opcode, PlanFlag, PlanPolicy, Status
from hotrow_rtl.lookup.combiner.pipeline_depth import latency
from hotrow_sim.golden.lookup.directory import Directory

from tests.support.benches.plan_bench import PlanBench
from tests.support.benches.stream_bench import RAGGED

TINY = replace(preset("tiny"), tables=8, counter_sets=64, miss_entries=32,
               directory_sets=64, batch_samples=256, stamp_bits=5)
SMALL = replace(TINY, name="small", lane_banks=1, counter_sets=32, counter_ways=2, window_beats=2)
STARVED = replace(SMALL, name="starved", directory_choices=1, directory_ways=2,
                  directory_partitions=1, directory_sets=16, stamp_bits=4)
ONE_LANE = replace(STARVED, name="one-lane", lookup_lanes=1, bus_bytes=8, burst_beats=8,
                   arithmetic=0, row_ports=1)
WIDE = replace(TINY, name="wide-bus", bus_bytes=64, burst_beats=8, directory_sets=256,
               miss_entries=128)
LAST_ROWS = (400, 99, 300)


@pytest.fixture(autouse=True)
def small_bypass_table(monkeypatch):
    """Entries of one bank: fewer take fewer cycles to clear, and more rows share one."""
    monkeypatch.setattr(config, "BYPASS_STAMPS", 32)


def policy(name):
    return PlanFlag.POLICY_LOW * PlanPolicy[name.upper()]


def skewed(rng, count, last=420):
    """Ids with a few hot ones, some beyond the table."""
    return np.minimum((last * rng.random(count) ** 3).astype(int), last)


def play(bench, flags, batches=12, seed=1, ids=60):
    """Batches of all layouts, marked ahead, retired late, with other commands between."""
    rng = np.random.default_rng(seed)
    coming, window = {}, min(5, bench.config.sweep_batches - 3)

    def batch():
        samples, tables = int(rng.integers(1, ids // 3)), int(rng.integers(1, 4))
        layout, lengths, count = int(rng.integers(0, 8)), None, samples * tables
        if layout & BatchFlag.JAGGED:
            lengths = rng.integers(0, 4, count)
            lengths[rng.integers(count)] += 1
            count = int(lengths.sum())
        return {"ids": skewed(rng, count), "samples": samples, "tables": tables,
                "lengths": lengths}, layout

    def coming_batch(number):
        if number not in coming:
            coming[number] = batch()
        return coming[number]

    rows = [(1, int(row)) for row in rng.integers(0, 99, 20)]
    bench.batch(Opcode.OBSERVE, 0, skewed(rng, 120))
    bench.list(Opcode.INSTALL, rows, flags & policy("freq"))
    for number in range(batches):
        for ahead in (2, 1):
            given, layout = coming_batch(number + ahead)
            if rng.random() < 0.7:
                bench.batch(Opcode.MARK, number + ahead, flags=layout, **given)
        given, layout = coming_batch(number)
        bench.batch(Opcode.PLAN, number, flags=flags | layout, **given)
        if rng.random() < 0.3:
            other, layout = batch()
            bench.batch(Opcode.SPLIT, 0, flags=layout, **other)
            bench.list(Opcode.REMOVE, rows[number:number + 2])
        if rng.random() < 0.1:
            bench.batch(Opcode.PLAN, number, [1, 2])  # out of order
        bench.retire(number - int(rng.integers(-1, window)))
    bench.run()
    return {name: sum(getattr(outcome, name) for outcome in bench.outcomes)
            for name in ("hits", "entries", "evictions", "bypasses", "refused")}


@pytest.mark.parametrize("card, name", [
    pytest.param(SMALL, "lru", marks=pytest.mark.long, id="small-lru"),
    *(pytest.param(TINY, name, marks=pytest.mark.long, id=f"tiny-{name}")
      for name in ("lru", "rrip", "lfu", "freq"))])
def test_equals_the_model(card, name):
    seen = play(PlanBench(card, LAST_ROWS), policy(name) | PlanFlag.COUNT)
    assert seen["hits"] and seen["evictions"], seen


@pytest.mark.long
def test_equals_the_model_on_a_wide_bus():
    play(PlanBench(WIDE, LAST_ROWS), policy("lru"), batches=3, ids=30)


@pytest.mark.slow
@pytest.mark.parametrize("card", [STARVED, *(
    pytest.param(card, marks=pytest.mark.long) for card in (TINY, ONE_LANE))],
    ids=lambda card: card.name)
def test_stalls_change_nothing(card):
    play(PlanBench(card, LAST_ROWS, RAGGED, RAGGED), policy("freq") | PlanFlag.ADMIT, batches=2,
         seed=2, ids=30)


def same_sets(card, count):
    """Rows of table 0 that compete for the same slots."""
    rows = range(LAST_ROWS[0])
    starts = Directory(card).set_starts(*([value] * len(rows) if value is not None else rows
                                          for value in (0, None, 0, 0)))
    return [row for row in rows if all(choice[row] == choice[0] for choice in starts)][:count]


def rows_again_within_a_batch_and_in_the_next(bench):
    """Close together, beyond the beats in which they are joined, and in the batch after."""
    first = bench.batch(Opcode.PLAN, 0, [5, 5, 6, *range(40, 80), 5, 6, 6])
    assert (first.entries, first.hits, first.unique) == (42, 3, 42)
    second = bench.batch(Opcode.PLAN, 1, [6, 5, *range(40, 60), 90])
    assert (second.entries, second.hits, second.evictions) == (1, 22, 0)


def refused_batches_change_nothing(bench):
    assert bench.batch(Opcode.PLAN, 1, [1]).status == Status.BATCH_ORDER
    assert bench.batch(Opcode.MARK, SMALL.sweep_batches, [1]).status == Status.WINDOW
    wrong = bench.batch(Opcode.PLAN, 0, [1, 2, 3], samples=2, flags=BatchFlag.JAGGED,
                        lengths=[1, 1])
    assert wrong.status == Status.LOOKUPS
    assert bench.batch(Opcode.PLAN, 0, [1, 2, 999]).status == Status.ROW_OUT_OF_RANGE
    assert bench.batch(Opcode.PLAN, 0, [4]).status == Status.BATCH_ORDER
    bench.list(Opcode.REMOVE, [])
    assert bench.batch(Opcode.PLAN, 0, [2, 7]).entries == 2


@pytest.mark.slow
def test_scenarios():
    """One after the other, on one engine; a REMOVE of everything comes in between."""
    bench = PlanBench(SMALL, LAST_ROWS)
    for scenario in (rows_again_within_a_batch_and_in_the_next, refused_batches_change_nothing):
        scenario(bench)
        bench.list(Opcode.REMOVE, [])
    bench.run()


def a_row_that_a_batch_needs_is_never_evicted(bench):
    """As many rows as there are places, held by PLAN, by MARK, or no longer."""
    rows = same_sets(STARVED, 8)
    assert bench.batch(Opcode.PLAN, 0, rows[:2]).bypasses == 0
    held = bench.batch(Opcode.PLAN, 1, rows[2:4])
    assert (held.bypasses, held.evictions, held.wait_for) == (2, 0, NO_BATCH)
    assert bench.retire(0) and not bench.retire(2)
    bench.batch(Opcode.MARK, 4, rows[:1])
    one = bench.batch(Opcode.PLAN, 2, rows[2:5])
    assert (one.evictions, one.bypasses, one.wait_for) == (1, 2, 1)
    found = bench.batch(Opcode.SPLIT, 0, rows[:3])
    assert found.hits == 2, "the marked row and the one that got the other slot"
    assert bench.batch(Opcode.PLAN, 3, [rows[0]] * 40).hits == 40


@pytest.mark.long
def test_scarce_slots():
    bench = PlanBench(STARVED, LAST_ROWS)
    a_row_that_a_batch_needs_is_never_evicted(bench)
    bench.list(Opcode.REMOVE, [])
    seen = play(bench, policy("rrip"), batches=4, ids=15)
    assert seen["hits"] and seen["evictions"], seen


@pytest.mark.long
def test_a_sweep_comes_before_its_batch():
    """Batches enough for stamps to wrap, of few rows."""
    bench, rng = PlanBench(STARVED, LAST_ROWS), np.random.default_rng(3)
    for number in range(24):
        bench.batch(Opcode.PLAN, number, skewed(rng, 8), flags=policy("rrip"))
        bench.retire(number - int(rng.integers(2)))
    bench.run()


@pytest.mark.long
@pytest.mark.parametrize("after", [(5, 22), (2, 8, 13, 34, 46, 64)])
def test_restart_in_a_plan(after):
    """What it gave is forgotten with everything; then all goes as at first."""
    bench = PlanBench(TINY, LAST_ROWS)
    ids = skewed(np.random.default_rng(4), 40, 300)
    for cycles in after:
        bench.dropped(Opcode.PLAN, 0, ids, cycles)
        bench.list(Opcode.REMOVE, [])
        assert bench.batch(Opcode.PLAN, 0, ids[:12]).hits == 0
        bench.list(Opcode.REMOVE, [])
    bench.run()


@pytest.mark.long
def test_two_lookups_a_cycle_if_all_come_and_others_leave():
    """Of both lists of rows a word of the bus holds two. Sets are many enough not to meet."""
    card = replace(TINY, tables=2, directory_sets=256, directory_ways=2, batch_samples=1024,
                   directory_choices=1, result_ports=4)
    bench, rng = PlanBench(card, (1 << 20,)), np.random.default_rng(5)
    for number in range(3):
        outcome = bench.batch(Opcode.PLAN, number, rng.integers(0, 1 << 20, 400))
        bench.retire(number)
    assert outcome.entries > 390 and outcome.evictions > 250
    assert bench.run()[-1] <= 400 / 2 + latency(card) + 80
