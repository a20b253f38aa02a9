"""Bags of rows pooled beside the model, to the bit."""

import os

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, with_timeout
from cocotb.utils import get_sim_time
from hotrow_rtl.float.formats import ElementType
from hotrow_sim.bench.unit_bench import UnitBench
from hotrow_sim.golden.arithmetic.pooling import ONE, pool

SEED, ROUNDS = int(os.environ.get("SEED", 1)), int(os.environ.get("ROUNDS", 2))
TYPES = {"fp32": np.uint32, "fp16": np.uint16, "bf16": np.uint16}


def words_of(rows, word_bytes):
    """Rows of any element type as words, with other bytes after each row."""
    octets = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    padded = np.pad(octets, ((0, 0), (0, -octets.shape[1] % word_bytes)), constant_values=0xA5)
    return [int.from_bytes(word.tobytes(), "little") for word in padded.reshape(-1, word_bytes)]


def format_of(kind, row_bytes):
    return ElementType[kind.upper()].value | row_bytes // 16 << 2


def random_rows(rng, count, row_bytes, kind, special=False):
    """Elements around 1, or with `special` any bits: subnormal, infinite, NaN."""
    dtype = TYPES[kind]
    shape = count, row_bytes // np.dtype(dtype).itemsize
    if special:
        return rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    values = rng.normal(size=shape).astype(np.float32)
    if kind == "fp16":
        return values.astype(np.float16).view(dtype)
    bits = values.view(np.uint32)
    return bits if kind == "fp32" else (bits >> np.uint32(16)).astype(dtype)


def bag_rows(lengths, weights=None):
    """Payloads of the stream of rows."""
    at = 0
    for length in lengths:
        if not length:
            yield {"weight": 0, "last": 1, "empty": 1}
        for place in range(length):
            yield {"weight": int(ONE if weights is None else weights[at]), "empty": 0,
                   "last": place == length - 1}
            at += 1


async def receive(sink, count, row_bytes, dtype, word_bytes):
    """Rows from a stream of words, whose `last` flags must mark the ends of rows."""
    per_row, rows = -(-row_bytes // word_bytes), []
    for _ in range(count):
        words = [await with_timeout(sink.get(), 60, "us") for _ in range(per_row)]
        assert [word.last for word in words] == [*[0] * (per_row - 1), 1]
        octets = b"".join(word.data.to_bytes(word_bytes, "little") for word in words)
        rows.append(np.frombuffer(octets[:row_bytes], dtype))
    return np.array(rows, dtype).reshape(count, -1)


class Bench:
    def __init__(self, units, seed):
        self.units, self.rng = units, np.random.default_rng(seed)
        self.word_bytes = 4 * units.config.arithmetic_lanes

    @classmethod
    async def start(cls, dut, seed=SEED, **pace):
        return cls(await UnitBench.start(dut, seed=seed, **pace), seed)

    async def setting(self, kind, row_bytes, mean=False):
        dut = self.units.dut
        dut.row_format.value, dut.mean.value = format_of(kind, row_bytes), int(mean)
        await ClockCycles(dut.clk, 4)

    def put(self, rows, lengths, weights=None):
        self.units.rows.put(*bag_rows(lengths, weights))
        self.units.words.put(*words_of(rows, self.word_bytes))

    async def check(self, lengths, row_bytes, kind="fp32", mean=False, weighted=False,
                    special=False, hold=0):
        """Results equal the model's; for `hold` cycles none is accepted."""
        rng = self.rng
        rows = random_rows(rng, sum(lengths), row_bytes, kind, special)
        weights = rng.normal(size=len(rows)).astype(np.float32).view(np.uint32) if weighted \
            else None
        await self.setting(kind, row_bytes, mean)
        self.units.results.paused = bool(hold)
        self.put(rows, lengths, weights)
        await ClockCycles(self.units.dut.clk, max(hold, 1))
        self.units.results.paused = False
        found = await receive(self.units.results, len(lengths), row_bytes, TYPES[kind],
                              self.word_bytes)
        wanted = pool(rows, lengths, kind, weights, mean)
        wrong = np.argwhere(found != wanted)
        assert not len(wrong), (
            f"seed {SEED}: bag {wrong[0][0]}, element {wrong[0][1]}: "
            f"{found[tuple(wrong[0])]:#x}, expected {wanted[tuple(wrong[0])]:#x}")


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(pace=[(0.0, 0.0), (0.3, 0.5)])
async def bags_equal_the_model(dut, pace):
    bench = await Bench.start(dut, idle=pace[0], stall=pace[1])
    for turn in range(ROUNDS):
        for number, kind in enumerate(TYPES):
            lengths = [int(each) for each in bench.rng.integers(0, 6, 5)]
            await bench.check(lengths, 16 * int(bench.rng.integers(1, 6)), kind,
                              mean=(turn + number) % 2 == 1, weighted=(turn + number) % 2 == 0)
    bench.units.finish()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def edges(dut):
    """Empty bags alone, bags longer than the partial sums, results that wait, any bits, the
    longest row."""
    bench = await Bench.start(dut)
    longest = bench.units.config.row_bytes
    await bench.check([0, 0, 1, 0], 16)
    await bench.check([0, 3], 32, mean=True)
    await bench.check([37, 1, 18], 16, mean=True)
    await bench.check([1] * 60, 32, "fp16", hold=500)
    for kind in TYPES:
        await bench.check([1, 2, 5], 32, kind, special=True)
    await bench.check([2, 0, 1], longest // (2 if longest > 512 else 1), "fp16")
    bench.units.finish()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_reset_drops_what_is_inside(dut):
    bench = await Bench.start(dut, stall=0.2)
    for cycles in (2, 9, 30, 55):
        await bench.setting("fp32", 48, mean=cycles % 2 == 1)
        rows = random_rows(bench.rng, 12, 48, "fp32")
        bench.put(rows, [5, 0, 7])
        await ClockCycles(dut.clk, cycles)
        await bench.units.restart()
        await bench.check([3, 0, 2], 32, "bf16")
    bench.units.finish()


@cocotb.test(timeout_time=200, timeout_unit="us")
async def one_word_a_cycle(dut):
    """Long bags of fp32 take few cycles more than their words."""
    bench = await Bench.start(dut)
    times = []
    for length in (16, 80):
        start = get_sim_time("ns")
        await bench.check([length], 64)
        times.append((get_sim_time("ns") - start) / 10)
    words = 64 * 64 // bench.word_bytes
    dut._log.info(f"cycles: {times[1] - times[0]:.0f} for {words} words of a bag")
    assert times[1] - times[0] <= 1.1 * words + 10, f"{times}: {words} words more"
