"""Lists in memory: the present elements in order, and no byte more."""

import os

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, with_timeout
from cocotb.utils import get_sim_time
from hotrow_sim.bench.unit_bench import UnitBench

SEED, ROUNDS = int(os.environ.get("SEED", 1)), int(os.environ.get("ROUNDS", 2))
BASE, SIZE = 0x2_0000_0000, 1 << 15
SLVERR, TIMEOUT = 1, 3


class Bench:
    """The unit with a memory, and a memory with the lists that it must write."""

    def __init__(self, units, seed):
        self.units, self.lanes = units, units.config.lanes
        self.rng = np.random.default_rng(seed)
        self.found = self.rng.integers(0, 256, SIZE, np.uint8)
        self.wanted, self.free, self.lists = self.found.copy(), 0, 0
        units.memory.map(self.found, BASE)

    @classmethod
    async def start(cls, dut, seed=SEED, **pace):
        return cls(await UnitBench.start(dut, seed=seed, **pace), seed)

    def put(self, beats, density=0.6, address=None):
        """Send a list of so many beats; lanes without an element have other data."""
        values, chosen = self.rng.integers(0, 1 << 32, (beats, self.lanes)), []
        present = self.rng.random((beats, self.lanes)) < density
        for number in range(beats):
            self.units.elements.put({
                "values": values[number].tolist(), "last": number == beats - 1,
                "present": sum(int(bit) << lane for lane, bit in enumerate(present[number]))})
            chosen += values[number][present[number]].tolist()
        octets = np.array(chosen, np.uint32).view(np.uint8)
        if address is None:
            if self.free + octets.size > SIZE:
                self.free = 0
            address = BASE + self.free
            self.free += -(-octets.size // 64) * 64
            self.wanted[address - BASE:address - BASE + octets.size] = octets
        self.units.starts.put({"address": address})
        self.lists += 1
        return address

    async def check(self, fault=0):
        """Every list ends with the fault, and memory is as it must be."""
        for _ in range(self.lists):
            assert (await with_timeout(self.units.written.get(), 60, "us")).fault == fault
        self.lists = 0
        if not fault:
            differ = np.flatnonzero(self.found != self.wanted)
            assert not len(differ), f"seed {SEED}: memory differs from {BASE + differ[0]:#x} on"


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(pace=[(0.0, 0.0), (0.5, 0.0), (0.0, 0.6), (0.3, 0.3)])
async def lists_are_written(dut, pace):
    bench = await Bench.start(dut, idle=pace[0], stall=pace[1])
    for _ in range(4 * ROUNDS):
        for density in (1.0, 0.5, 0.1):
            bench.put(int(bench.rng.integers(1, 40)), density)
            bench.put(int(bench.rng.integers(1, 4)), density)
            bench.put(1, 0.5)
        await bench.check()
    bench.units.finish()
    assert not bench.units.memory.strays


@cocotb.test(timeout_time=400, timeout_unit="us")
async def edges(dut):
    """Empty lists, one element, a list across 4 KiB, one of every length around a burst, one that
    comes while the memory waits, and lists where no memory is."""
    bench = await Bench.start(dut)
    for beats in (1, 3):
        bench.put(beats, density=0.0)
    await bench.check()
    bench.free = 4096 - 64
    words = bench.units.config.burst_beats * bench.units.config.bus_bytes // 4 // bench.lanes
    for beats in range(max(1, words - 2), words + 3):
        bench.put(beats, density=1.0)
    bench.put(2 * words + 1, density=1.0)
    await bench.check()
    bench.units.m_axi.silence()
    bench.put(400, density=1.0)
    await ClockCycles(dut.clk, 500)
    bench.units.m_axi.silence(False)
    await bench.check()
    bench.put(5, density=1.0, address=BASE + SIZE)
    await bench.check(SLVERR)
    bench.put(5, density=1.0)
    await bench.check()
    bench.units.finish()


@cocotb.test(timeout_time=400, timeout_unit="us")
async def a_restart_drops_what_is_inside(dut):
    bench = await Bench.start(dut, stall=0.3)
    for cycles in (0, 1, 4, 15, 30, 45):
        before = bench.found.copy()
        bench.put(20)
        bench.put(20)
        await ClockCycles(dut.clk, cycles)
        await bench.units.restart(wait=False)
        bench.lists, start = 0, bench.free
        bench.put(7)  # while the port may drain
        await bench.units.ready()
        dropped = slice(0, start)
        found = bench.found[dropped]
        assert ((found == before[dropped]) | (found == bench.wanted[dropped])).all()
        bench.wanted[dropped] = found
        await bench.check()
    bench.units.finish()


@cocotb.test(timeout_time=400, timeout_unit="us")
async def a_silent_memory_ends_a_list(dut):
    bench = await Bench.start(dut)
    dut.timeout.value = 100
    bench.put(300, density=1.0)  # takes longer, but never stops
    await bench.check()
    bench.units.m_axi.silence()
    bench.put(3, density=1.0)
    await bench.check(TIMEOUT)
    assert int(dut.stopped.value)
    bench.units.m_axi.silence(False)
    await ClockCycles(dut.clk, 60)
    await bench.units.restart()
    assert not int(dut.stopped.value)
    bench.wanted[:] = bench.found
    bench.put(9)
    await bench.check()


@cocotb.test(timeout_time=200, timeout_unit="us")
async def one_word_a_cycle(dut):
    bench = await Bench.start(dut)
    start = get_sim_time("ns")
    bench.put(200, density=1.0)
    await bench.check()
    taken = (get_sim_time("ns") - start) / 10
    words = 200 * 4 * bench.lanes // bench.units.config.bus_bytes
    dut._log.info(f"cycles: {taken:.0f} for a list of {words} words")
    assert taken <= max(words, 200) * 1.3 + 40, f"{taken} cycles"
