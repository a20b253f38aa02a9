"""Rows updated by their gradients beside the model, to the bit."""

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, with_timeout
from cocotb.utils import get_sim_time
from hotrow_rtl.arithmetic.optimizer import Optimizer
from hotrow_sim.bench.unit_bench import UnitBench
from hotrow_sim.cycles.arithmetic import update_cycles
from hotrow_sim.golden.arithmetic.optimizer import rowwise_adagrad, sgd
from hotrow_sim.golden.arithmetic.pooling import bag_sums
from hotrow_sim.golden.float import widen
from tb_pooling import ROUNDS, SEED, TYPES, bag_rows, format_of, random_rows, receive, words_of


def fp32(value):
    return np.float32(value).view(np.uint32)


class Bench:
    def __init__(self, units, seed):
        self.units, self.rng = units, np.random.default_rng(seed)
        self.word_bytes = 4 * units.config.arithmetic_lanes

    @classmethod
    async def start(cls, dut, seed=SEED, **pace):
        return cls(await UnitBench.start(dut, seed=seed, **pace), seed)

    async def put(self, counts, elements, kind, gradient_kind, adagrad, special=False):
        """Send rows with `counts` gradients each; return the expected rows and states."""
        rng, dut, units = self.rng, self.units.dut, self.units
        sizes = {each: elements * np.dtype(TYPES[each]).itemsize
                 for each in (kind, gradient_kind)}
        rows = random_rows(rng, len(counts), sizes[kind], kind, special)
        gradients = random_rows(rng, sum(counts), sizes[gradient_kind], gradient_kind, special)
        states = np.abs(rng.normal(size=len(counts))).astype(np.float32).view(np.uint32)
        lr, eps = fp32(rng.random()), fp32(0.1 ** rng.integers(0, 9) if adagrad else 0)
        optimizer = Optimizer.ROWWISE_ADAGRAD if adagrad else Optimizer.SGD
        for name, value in (("row_format", format_of(kind, sizes[kind])),
                            ("gradient_format", format_of(gradient_kind, sizes[gradient_kind])),
                            ("optimizer", optimizer.value), ("lr", lr), ("eps", eps)):
            getattr(dut, name).value = int(value)
        await ClockCycles(dut.clk, 4)
        units.gradients.put(*bag_rows(counts))
        units.gradient_words.put(*words_of(gradients, self.word_bytes))
        units.words.put(*words_of(rows, self.word_bytes))
        sums = bag_sums(widen(gradients, gradient_kind), counts)
        if not adagrad:
            return sgd(rows, sums, lr, kind), []
        units.states.put(*states.tolist())
        return rowwise_adagrad(rows, sums, states, lr, eps, kind)

    async def check(self, counts, elements, kind="fp32", gradient_kind="fp32", adagrad=False,
                    special=False):
        wanted, states = await self.put(counts, elements, kind, gradient_kind, adagrad, special)
        found = await receive(self.units.results, len(counts), wanted[0].nbytes, TYPES[kind],
                              self.word_bytes)
        wrong = np.argwhere(found != wanted)
        assert not len(wrong), (
            f"seed {SEED}: row {wrong[0][0]}, element {wrong[0][1]}: "
            f"{found[tuple(wrong[0])]:#x}, expected {wanted[tuple(wrong[0])]:#x}")
        for number, state in enumerate(states):
            got = await with_timeout(self.units.updated_states.get(), 20, "us")
            assert got == int(state), f"seed {SEED}: state {number}"


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(pace=[(0.0, 0.0), (0.3, 0.5)])
async def steps_equal_the_model(dut, pace):
    bench = await Bench.start(dut, idle=pace[0], stall=pace[1])
    for turn in range(ROUNDS):
        for adagrad in (False, True):
            for number, kind in enumerate(TYPES):
                other = tuple(TYPES)[(number + turn + 1) % len(TYPES)]
                counts = [int(each) for each in bench.rng.integers(1, 4, 3)]
                await bench.check(counts, 8 * int(bench.rng.integers(1, 4)), kind, other, adagrad)
    bench.units.finish()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def edges(dut):
    """One row, many gradients of a row, any bits, rows shorter than a word, the longest row."""
    bench = await Bench.start(dut)
    longest = min(bench.units.config.row_bytes // 4, 64)
    for adagrad in (False, True):
        await bench.check([1], 4, adagrad=adagrad)
        await bench.check([21, 1, 1, 2], 4, adagrad=adagrad)
        await bench.check([1, 1], longest, adagrad=adagrad)
    await bench.check([1, 2, 1], 8, special=True)
    await bench.check([1, 2, 1], 8, "fp16", "bf16", special=True)
    await bench.check([1] * 9, 8, adagrad=True)
    bench.units.finish()


@cocotb.test(timeout_time=400, timeout_unit="us")
async def outputs_that_wait(dut):
    """Rows wait inside until results, or states, are accepted: none is lost."""
    bench = await Bench.start(dut)
    for sink in (bench.units.results, bench.units.updated_states):
        sink.paused = True
        rows = cocotb.start_soon(bench.check([1] * 24, 16, adagrad=True))
        await ClockCycles(dut.clk, 600)
        sink.paused = False
        await rows
    bench.units.finish()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_reset_drops_what_is_inside(dut):
    bench = await Bench.start(dut, stall=0.2)
    for cycles in (2, 20, 50, 75):
        await bench.put([2, 1, 3], 12, "fp32", "fp32", adagrad=cycles % 4 == 0)
        await ClockCycles(dut.clk, cycles)
        await bench.units.restart()
        await bench.check([1, 2], 8, "bf16", adagrad=cycles % 4 == 2)
    bench.units.finish()


@cocotb.test(timeout_time=200, timeout_unit="us")
async def cycles_of_the_model(dut):
    """Many rows with a gradient each: a word a cycle, with one lane one in two."""
    bench = await Bench.start(dut)
    times, counts = [], (4, 20)
    for rows in counts:
        start = get_sim_time("ns")
        await bench.check([1] * rows, 16)
        times.append((get_sim_time("ns") - start) / 10)
    few, many = (update_cycles(bench.units.config.units, 16, [1] * rows, False) for rows in counts)
    words = 16 * 64 // bench.word_bytes
    dut._log.info(f"cycles: {times[1] - times[0]:.0f} for {words} words of rows")
    assert abs(times[1] - times[0] - (many - few)) <= 10, f"{times}, the model has {few}, {many}"
