"""Doorbells within and beyond the ring, around the wrap of their numbers at 2**32."""

import numpy as np
import pytest
from hotrow_rtl.host.command_queue import Doorbell
from hotrow_sim.model.command_queue import ahead

from tests.support.benches.stream_bench import StreamBench, pulse
from tests.support.simulation import built

WORD = (1 << 32) - 1


@pytest.mark.parametrize("start", [0, WORD - 20, 1 << 31])
def test_random_doorbells(start):
    dut, rng = built(Doorbell), np.random.default_rng(start)
    bench, entries_log2 = StreamBench(dut), 3

    async def host(ctx):
        completed = tail = start
        accepted = 0
        ctx.set(dut.tail, start)
        ctx.set(dut.enable, 1)
        ctx.set(dut.entries, entries_log2)
        for step in range(150):
            completed = (completed + int(rng.integers(ahead(tail, completed) + 1))) & WORD
            ctx.set(dut.completed, completed)
            value = (completed + int(rng.integers(-2, (1 << entries_log2) + 3))) & WORD
            if step % 4 == 3:  # a legal value but for one bit
                value = (completed + int(rng.integers(1, 1 << entries_log2))) & WORD
                value ^= 1 << step // 4 % 32
            ctx.set(dut.submitted, value)
            await pulse(ctx, dut.ring)
            await ctx.tick()
            legal = ahead(tail, completed) <= ahead(value, completed) <= 1 << entries_log2
            tail = value if legal else tail
            accepted += legal
            assert (ctx.get(dut.tail), ctx.get(dut.refused)) == (tail, not legal), step
        assert 30 < accepted < 150 and ahead(tail, start) > 40
    bench.process("host", host)
    bench.run(1000)
