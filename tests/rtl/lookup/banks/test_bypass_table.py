"""Bypass stamps of a bank beside the rule of the golden planner, and the newest over all banks."""

from dataclasses import replace

import numpy as np
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import NO_BATCH
from hotrow_rtl.lookup.banks.bypass_table import BypassTable, DependencyReducer, entry_width

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
NEVER = -1


def test_the_newest_batch_of_the_entries_that_were_asked():
    """Few entries, rows back to back, so that what is on its way to the table counts."""
    rng, dut = np.random.default_rng(1), built(BypassTable, TINY)
    bench, last, told = StreamBench(dut), {}, []

    async def begin(ctx, batch, unretired):
        ctx.set(dut.batch, batch)
        ctx.set(dut.unretired, unretired)
        ctx.set(dut.begin, 1)
        await ctx.tick()
        ctx.set(dut.begin, 0)

    async def check(ctx):
        await ctx.tick().until(dut.ready)
        for batch in range(60):
            retired = max(NEVER, batch - int(rng.integers(1, 9)))
            await begin(ctx, batch, batch - retired)
            wanted, hot = NEVER, rng.integers(0, 5, 6)
            for _ in range(int(rng.integers(0, 12))):
                entry, bypassed = int(rng.choice(hot)), int(rng.random() < 0.3)
                enter = int(rng.random() < 0.8)
                ctx.set(dut.valid, enter)
                ctx.set(dut.entry, entry)
                ctx.set(dut.bypassed, bypassed)
                await ctx.tick()
                if enter:
                    by = min(last.get(entry, NEVER), batch - 1)
                    wanted = max(wanted, by if by > retired else NEVER)
                    if bypassed:
                        last[entry] = batch
            ctx.set(dut.valid, 0)
            await ctx.tick().repeat(dut.latency)
            newest = ctx.get(dut.newest)
            assert (batch - newest.age if newest.valid else NEVER) == wanted, batch
            told.append(wanted)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        await ctx.tick().until(dut.ready)
        await begin(ctx, 60, 60)
        ctx.set(dut.valid, 1)
        ctx.set(dut.bypassed, 0)
        for entry in range(5):
            ctx.set(dut.entry, entry)
            await ctx.tick()
        await ctx.tick().repeat(dut.latency)
        assert not ctx.get(dut.newest).valid
    bench.process("check", check)
    bench.run(5000)
    assert len(set(told)) > 20 and told[10:].count(NEVER) > 3


def test_the_newest_of_all_banks():
    config = replace(TINY, name="bus-32", bus_bytes=32, directory_sets=128)
    rng, dut = np.random.default_rng(2), built(DependencyReducer, config)
    bench = StreamBench(dut)

    async def check(ctx):
        ctx.set(dut.batch, 1000)
        for _ in range(30):
            ages = rng.integers(1, config.sweep_batches, config.banks)
            valid = rng.random(config.banks) < 0.1
            for port, age, has in zip(dut.banks, ages.tolist(), valid.tolist(), strict=True):
                ctx.set(port, {"age": age, "valid": has})
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            for _ in range(config.banks + 1):
                assert not ctx.get(dut.done)
                await ctx.tick()
            assert ctx.get(dut.done)
            assert ctx.get(dut.wait_for) == (1000 - min(ages[valid]) if valid.any() else NO_BATCH)
            await ctx.tick()
    bench.process("check", check)
    bench.run(2000)


def test_an_entry_of_a_bank():
    assert 1 << entry_width(TINY) == TINY.bypass_stamps // TINY.banks
