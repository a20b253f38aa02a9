"""Victim key: a slot and the tag in it tell the row that was there."""

from dataclasses import replace

import numpy as np
import pytest
from amaranth.lib import data
from hotrow_rtl.config import preset
from hotrow_rtl.lookup.hashing.row_location import directory_hash, split_key
from hotrow_rtl.lookup.planner.plan_lists import VictimKey
from hotrow_sim.golden.lookup.counters import pack_key
from hotrow_sim.golden.lookup.directory import Directory

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
CONFIGS = [TINY, preset("ecp5"), preset("alveo-u55c"),
           replace(TINY, name="one-choice", directory_choices=1)]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_the_row_is_that_of_the_tag(config):
    rng, count = np.random.default_rng(len(config.name)), 60
    table = rng.integers(0, config.tables, count)
    row = rng.integers(0, 1 << config.row_width, count)
    starts = Directory(config).set_starts(table, row, np.zeros(count, int), np.zeros(count, int))
    _, rests = split_key(config, pack_key(config, table, row))
    dut = built(VictimKey, config)
    bench = StreamBench(dut)

    async def check(ctx):
        ctx.set(dut.enable, 1)
        for number in range(count + dut.latency):
            if number < count:
                choice = int(rng.integers(config.directory_choices))
                hashed = int(directory_hash(config, choice, rests[number]))
                ctx.set(dut.slot, starts[choice][number] + int(rng.integers(config.directory_ways)))
                ctx.set(dut.tag, hashed >> config.bank_key_width - config.directory_tag_width)
            await ctx.tick()
            due = number + 1 - dut.latency
            if 0 <= due < count:
                key = ctx.get(dut.key)
                assert isinstance(key, data.Const)
                assert (key.table, key.row) == (table[due], row[due])
    bench.process("check", check)
    bench.run(count + 10)


def test_a_step_waits():
    dut = built(VictimKey, TINY)
    bench = StreamBench(dut)

    async def check(ctx):
        seen = []
        for number in range(8):
            ctx.set(dut.slot, 17 * number)
            ctx.set(dut.tag, 1000 + number)
            ctx.set(dut.enable, number < 3)
            await ctx.tick()
            seen.append(ctx.get(dut.key).as_bits())
        assert len(set(seen[2:])) == 1 and seen[1] != seen[2]
    bench.process("check", check)
    bench.run(20)
