"""The look-ahead planner beside its model."""

from functools import partial

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time
from hotrow_rtl.contract.encoding import BatchFlag, Opcode, PlanFlag, PlanPolicy, Status
from lookup_bench import ROUNDS, Bench, silence_ends

POLICIES = tuple(PlanPolicy)


def policy(chosen):
    return PlanFlag.POLICY_LOW * chosen


async def retire(bench, number):
    """Retire the batches up to one, in the unit and in the model."""
    dut = bench.units.dut
    accepted = bench.model.planning.retire(number)
    dut.retirement_write.value, dut.retirement_number.value = 1, number
    await RisingEdge(dut.clk)
    dut.retirement_write.value = 0
    refused = False
    for _ in range(6):
        await RisingEdge(dut.clk)
        refused |= bool(int(dut.retirement_refused.value))
    assert refused != accepted
    assert int(dut.retirement_retired.value) == bench.model.planning.retired


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(pace=[(0.0, 0.0), (0.4, 0.3)])
async def batches_equal_the_model(dut, pace):
    """Batches of all layouts and policies, marked ahead and retired late, with others between."""
    bench = await Bench.start(dut, idle=pace[0], stall=pace[1])
    rng, coming = bench.rng, {}

    def ids(number):
        """Ids of a batch, the same in its MARK and its PLAN."""
        if number not in coming:
            coming[number] = (90 * rng.random(3 * 8) ** 2).astype(np.int64)
        return coming[number]

    bench.batch(Opcode.OBSERVE, samples=20)
    bench.rows(Opcode.INSTALL, bench.random_rows(12), policy(PlanPolicy.LRU))
    for number in range(4 * ROUNDS):
        flags = policy(POLICIES[number // 2 % len(POLICIES)]) | (
            PlanFlag.COUNT if number % 3 else 0) | (PlanFlag.ADMIT if number % 5 == 1 else 0) | (
            PlanFlag.READ_ONLY if number % 2 else 0)
        for ahead in (1, 3) if number % 4 == 1 else ():
            bench.batch(Opcode.MARK, ids(number + ahead), value=number + ahead)
        layout = int(rng.integers(0, 2)) * BatchFlag.FEATURE_MAJOR
        bench.batch(Opcode.PLAN, ids(number), value=number, flags=flags, layout=layout)
        if number % 4 == 2:
            bench.batch(Opcode.SPLIT, samples=6)
            bench.rows(Opcode.REMOVE, bench.random_rows(3))
        if number % 3 == 2:
            await bench.check()
            await retire(bench, number - 1)
    await bench.check()
    bench.finish()


@cocotb.test(timeout_time=400, timeout_unit="us")
async def edges(dut):
    """Out of order, beyond the window, more rows than slots, jagged with wrong lengths, retired
    twice or too far."""
    bench = await Bench.start(dut)
    most = bench.config.sweep_batches
    bench.batch(Opcode.PLAN, np.arange(6), samples=2, value=3)
    for number in range(most):
        bench.batch(Opcode.PLAN, np.arange(3) + number % 5, samples=1, value=number)
    for opcode in (Opcode.PLAN, Opcode.MARK):  # a batch that is planned
        bench.batch(opcode, np.arange(3), samples=1, value=most - 1)
    bench.batch(Opcode.PLAN, np.arange(3), samples=1, value=most)
    bench.batch(Opcode.MARK, np.arange(3), samples=1, value=most)
    await bench.check()
    for number in (most, 0, 0, most - 2):
        await retire(bench, number)
    bench.batch(Opcode.PLAN, np.arange(240), samples=240, tables=1, value=most)
    bench.batch(Opcode.PLAN, samples=4, layout=BatchFlag.JAGGED, count=200, value=most + 1,
                source=bench.place(np.zeros(200, np.uint32)))
    await bench.check()
    bench.finish()


@cocotb.test(timeout_time=400, timeout_unit="us")
async def a_restart_drops_what_is_inside(dut):
    """The planner is as new after the directory is cleared."""
    bench = await Bench.start(dut, stall=0.2)
    for cycles in (5, 70, 150):
        bench.batch(Opcode.PLAN, np.arange(60), samples=20, value=0)
        bench.batch(Opcode.PLAN, np.arange(60), samples=20, value=1)
        await bench.restart(cycles, *(
            partial(bench.command, opcode, flags=1) for opcode in (Opcode.REMOVE, Opcode.DECAY)))
        await bench.check()
        bench.batch(Opcode.PLAN, np.arange(30) % 17, samples=10, value=0)
        bench.batch(Opcode.PLAN, np.arange(30) % 23, samples=10, value=1)
        await bench.check()
        await retire(bench, 1)
        bench.command(Opcode.REMOVE, flags=1)
        await bench.check()
    bench.finish()


@cocotb.test(timeout_time=400, timeout_unit="us")
async def a_silent_memory_ends_a_command(dut):
    bench = await Bench.start(dut)
    assert await silence_ends(bench, bench.units.m_axi_result, lambda: bench.batch(
        Opcode.PLAN, np.arange(24), value=0)) == Status.TIMEOUT


@cocotb.test(timeout_time=200, timeout_unit="us")
async def one_word_of_ids_a_cycle(dut):
    """The rows of a batch are planned as they come: a long one takes few cycles more than its
    words."""
    bench = await Bench.start(dut)
    times = []
    for number, lookups in enumerate((64, 320)):
        start = get_sim_time("ns")
        bench.batch(Opcode.PLAN, np.arange(lookups) // 16, samples=lookups, tables=1, value=number)
        await bench.check()
        times.append((get_sim_time("ns") - start) / 10)
    words = 256 / bench.config.lanes
    dut._log.info(f"cycles: {times[1] - times[0]:.0f} for {words:.0f} words of ids")
    assert times[1] - times[0] <= 1.5 * words + 10, f"{times}: {words} words more"
