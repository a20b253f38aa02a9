"""Plan window: the order of batches, what may be open, and what the host retires."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import NO_BATCH, Opcode, Status
from hotrow_rtl.lookup.planner.window import PlanWindow
from hotrow_sim.golden.lookup.counters import Counters
from hotrow_sim.model.planner import PlanEngine

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

CONFIG = replace(preset("tiny"), stamp_bits=4)  # up to 4 batches
WORD = 0xFFFF_FFFF


class Window:
    """The window and the model of the card's batches, asked alike."""

    def __init__(self):
        self.dut, self.model = built(PlanWindow, CONFIG), PlanEngine(CONFIG, Counters(CONFIG))
        self.bench, self.seen = StreamBench(self.dut), set()

    async def pulse(self, ctx, signal):
        ctx.set(signal, 1)
        await ctx.tick()
        ctx.set(signal, 0)

    async def judge(self, ctx, opcode, number):
        """Whether the batch may come; a planned one does."""
        dut, state = self.dut, self.model.planner.state
        ctx.set(dut.batch, number & WORD)
        ctx.set(dut.plans, opcode == Opcode.PLAN)
        await ctx.tick().repeat(dut.latency)
        refused = self.model.refusal({"opcode": opcode, "value": number & WORD})
        got = Status(ctx.get(dut.status)), ctx.get(dut.index)
        if refused:
            assert got == (refused.status, refused.error_index), number
        else:
            assert got[0] == Status.OK, number
        if opcode == Opcode.PLAN and not refused:
            await self.pulse(ctx, dut.accept)
            state.planned += 1
        assert ctx.get(dut.planned) == state.planned & WORD
        self.seen.add((opcode, got[0]))

    async def retire(self, ctx, number):
        """Write the register."""
        host = self.dut.host
        heeded = self.model.retire(number & WORD)
        ctx.set(host.number, number & WORD)
        await self.pulse(ctx, host.write)
        await ctx.tick()
        assert ctx.get(host.refused) == (not heeded), number
        assert ctx.get(host.retired) == self.model.retired
        await ctx.tick()
        assert not ctx.get(host.refused)
        self.seen.add(("retire", heeded))


def test_equals_the_model():
    """Numbers around those that are right, and some far away."""
    rng, window = np.random.default_rng(1), Window()

    def near(number):
        return number + int(rng.choice([-1, 0, 1, 1, 1, 2, 3, 4, 5, 1 << 31, (1 << 31) + 1]))

    async def drive(ctx):
        state = window.model.planner.state
        for _ in range(600):
            which = rng.integers(5)
            if which < 3:
                await window.judge(ctx, Opcode.PLAN if which else Opcode.MARK, near(state.planned))
            else:
                await window.retire(ctx, near(state.retired))
        assert state.planned > 50
    window.bench.process("drive", drive)
    window.bench.run(10_000)
    assert len(window.seen) == 8


def test_all_batches_are_forgotten():
    window = Window()

    async def drive(ctx):
        for number in range(3):
            await window.judge(ctx, Opcode.PLAN, number)
        await window.retire(ctx, 1)
        await window.pulse(ctx, window.dut.clear)
        assert ctx.get(window.dut.planned) == ctx.get(window.dut.host.retired) == NO_BATCH
        window.model.planner.clear()
        await window.retire(ctx, 0)
        await window.judge(ctx, Opcode.PLAN, 3)
        await window.judge(ctx, Opcode.PLAN, 0)
    window.bench.process("drive", drive)
    window.bench.run(200)


@pytest.mark.parametrize("apart", range(-2, 3))
def test_a_clear_near_a_write_of_the_host(apart):
    """A write before the clear, or in its cycle, is dropped; a later one finds nothing planned."""
    dut = built(PlanWindow, CONFIG)
    bench = StreamBench(dut)

    async def drive(ctx):
        ctx.set(dut.batch, 5)
        ctx.set(dut.accept, 1)
        await ctx.tick()
        ctx.set(dut.accept, 0)
        assert ctx.get(dut.planned) == 5
        ctx.set(dut.host.number, 3)
        for cycle in range(6):
            ctx.set(dut.clear, cycle == 2)
            ctx.set(dut.host.write, cycle == 2 + apart)
            await ctx.tick()
        ctx.set(dut.clear, 0)
        await ctx.tick().repeat(4)
        assert ctx.get(dut.planned) == ctx.get(dut.host.retired) == NO_BATCH
    bench.process("host", drive)
    bench.run(100)
