"""The lookup engines of a card with a planner beside the model of the whole card."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract import BatchFlag, Opcode, PlanFlag, PlanPolicy
from hotrow_sim.planbench import PlanBench
from hotrow_sim.streambench import STEADY

TINY = replace(preset("tiny"), planner=True, tables=8, counter_sets=64, miss_entries=32,
               directory_sets=64, batch_samples=256, stamp_bits=5)
CONFIGS = [
    TINY,
    replace(TINY, name="starved", directory_choices=1, directory_ways=2, directory_partitions=1,
            directory_sets=16),
    replace(TINY, name="wide-bus", bus_bytes=64, burst_beats=8, directory_sets=256,
            miss_entries=128),
]
LAST_ROWS = (400, 99, 300)


def policy(name):
    return PlanFlag.POLICY_LOW * PlanPolicy[name.upper()]


def skewed(rng, count, last=420):
    """Ids with a few hot ones, some beyond the table."""
    return np.minimum((last * rng.random(count) ** 3).astype(int), last)


def play(config, flags, gaps=STEADY, pauses=STEADY, batches=12, seed=1, ids=60):
    """Batches of all layouts, marked ahead, retired late, with other commands between."""
    rng, bench = np.random.default_rng(seed), PlanBench(config, LAST_ROWS, gaps, pauses)
    coming, window = {}, min(5, config.sweep_batches - 3)

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


@pytest.mark.parametrize("name", ["lru", "rrip", "lfu", "freq"])
def test_equals_the_model(name):
    seen = play(TINY, policy(name) | PlanFlag.COUNT)
    assert seen["hits"] and seen["evictions"], seen


@pytest.mark.parametrize("config", CONFIGS[1:], ids=lambda config: config.name)
def test_other_cards(config):
    seen = play(config, policy("lru"), batches=8)
    assert config.name != "starved" or min(seen.values()) > 10, seen
