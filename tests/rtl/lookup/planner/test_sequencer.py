"""Plan sequencer: what a command sets for the units of the planner, and when they are ready."""

import numpy as np
import pytest
from amaranth.sim import Simulator
from hotrow_rtl.config import log2, preset
from hotrow_rtl.contract.encoding import Opcode, PlanFlag, Status
from hotrow_rtl.interfaces.lookup_payloads import DirectoryOp
from hotrow_rtl.lookup.planner.sequencer import PlanSequencer
from hotrow_rtl.lookup.planner.window import PlanWindow

CONFIG = preset("tiny")
OPS = {Opcode.PLAN: DirectoryOp.PLAN, Opcode.MARK: DirectoryOp.MARK}


def simulate(scenario):
    dut = PlanSequencer(CONFIG)

    async def drive(ctx):
        await scenario(ctx, dut)
    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()


async def start(ctx, dut, opcode, flags=0, value=0):
    ctx.set(dut.control.command, {"opcode": opcode, "flags": flags, "value": value})
    ctx.set(dut.control.start, 1)
    await ctx.tick()
    ctx.set(dut.control.start, 0)


@pytest.mark.parametrize("opcode", [Opcode.PLAN, Opcode.MARK, Opcode.SPLIT])
def test_the_setting_of_every_command(opcode):
    rng = np.random.default_rng(opcode)

    async def scenario(ctx, dut):
        for _ in range(60):
            flags, value, planned, retired = (int(each) for each in rng.integers(
                0, [1 << 8, 1 << 32, 1 << 32, 1 << 32]))
            ctx.set(dut.planned, planned)
            ctx.set(dut.retired, retired)
            await start(ctx, dut, opcode, flags, value)
            ctx.set(dut.planned, 0)
            ctx.set(dut.retired, 0)
            batch = value if opcode in OPS else planned
            setting = ctx.get(dut.setting)
            stamps = 1 << CONFIG.stamp_bits
            assert ctx.get(dut.op) == OPS.get(opcode, DirectoryOp.FIND)
            assert ctx.get(dut.batch) == batch
            assert (setting.batch, setting.retired) == (batch % stamps, retired % stamps)
            assert setting.policy.value == flags >> log2(PlanFlag.POLICY_LOW)
            assert setting.admission == (opcode == Opcode.PLAN and bool(flags & PlanFlag.ADMIT))
            assert setting.writes == (not flags & PlanFlag.READ_ONLY)
    simulate(scenario)


@pytest.mark.parametrize("opcode", [Opcode.PLAN, Opcode.MARK, Opcode.SPLIT])
def test_one_verdict_for_each_plan_and_mark(opcode):
    async def scenario(ctx, dut):
        verdict = dut.control.verdict
        for _ in range(2):
            ctx.set(dut.status, Status.WINDOW)
            ctx.set(dut.index, 77)
            await start(ctx, dut, opcode)
            valid = []
            for _ in range(PlanWindow.latency + 3):
                valid.append(ctx.get(verdict.valid))
                await ctx.tick()
            due = [cycle >= PlanWindow.latency - 1 for cycle in range(PlanWindow.latency + 3)]
            assert valid == (due if opcode in OPS else [False] * len(due))
            assert (ctx.get(verdict.p.status), ctx.get(verdict.p.error_index)) == (
                Status.WINDOW, 77)
            ctx.set(verdict.ready, 1)
            await ctx.tick()
            ctx.set(verdict.ready, 0)
            for _ in range(8):
                assert not ctx.get(verdict.valid)
                await ctx.tick()
    simulate(scenario)


def test_a_sweep_in_every_window_of_batches():
    async def scenario(ctx, dut):
        ctx.set(dut.cleared, 1)
        await ctx.tick().repeat(2)
        for number in (0, 1, CONFIG.sweep_batches - 1, CONFIG.sweep_batches,
                       CONFIG.sweep_batches * 3, CONFIG.sweep_batches * 3 + 1):
            await start(ctx, dut, Opcode.PLAN, value=number)
            assert ctx.get(dut.control.ready)
            ctx.set(dut.control.accept, 1)
            assert ctx.get(dut.accept)
            await ctx.tick()
            ctx.set(dut.control.accept, 0)
            assert ctx.get(dut.begin)
            assert ctx.get(dut.sweep) == (number % CONFIG.sweep_batches == 0)
            ready = []
            for _ in range(6):
                ready.append(ctx.get(dut.control.ready))
                await ctx.tick()
                assert not ctx.get(dut.begin) and not ctx.get(dut.sweep)
            assert ready == [0, 0, 0, 0, 1, 1], "five cycles after the acceptance"
            ctx.set(dut.cleared, 0)
            await ctx.tick().repeat(2)
            assert not ctx.get(dut.control.ready)
            ctx.set(dut.cleared, 1)
            await ctx.tick().repeat(2)
    simulate(scenario)
