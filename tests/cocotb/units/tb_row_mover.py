"""The row mover beside its model: random lists and spans, then equal memories."""

import os
from dataclasses import replace

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, with_timeout
from cocotb.utils import get_sim_time
from hotrow_rtl.contract.encoding import OPERANDS, GatherFlag, Status, packed_address
from hotrow_sim.bench.unit_bench import UnitBench
from hotrow_sim.golden.region_check import unpack_address
from hotrow_sim.model.device import MoveEngine
from lookup_bench import OneFault

from tests.support.benches.row_bench import (
    BASE,
    LISTED,
    REGIONS,
    SIZE,
    SOURCE_LIST,
    STATE_SLOTS,
    TABLES,
    WITH_STATE,
    Gather,
    Scatter,
    Span,
)

SEED, ROUNDS = int(os.environ.get("SEED", 1)), int(os.environ.get("ROUNDS", 2))
LISTS = 0x3000  # bytes
SOURCES, SINKS = [0, 1, 2, 3], [8, 9, 10, 11]  # tables of a GATHER and of a SCATTER
FIELDS = ("status", "error_index", "error_address", "entries", "bytes")


class Bench:
    """The unit and its model with memories of their own."""

    def __init__(self, units, seed):
        self.units, self.config, self.rng = units, units.config, np.random.default_rng(seed)
        c = self.config
        self.images = [self.rng.integers(0, 256, SIZE, np.uint8)]
        self.images.append(self.images[0].copy())
        self.lists, memory = np.zeros(LISTS, np.uint8), OneFault(c.address_width, c.bus_bytes)
        for target, image in ((units.memory.map, self.images[0]),
                              (lambda array, base: memory.map(base, array, True),
                               self.images[1])):
            target(image, BASE)
            target(self.lists, SOURCE_LIST)
        self.model = MoveEngine(c, memory, REGIONS, TABLES)

    @classmethod
    async def start(cls, dut, seed=SEED, **pace):
        bench = cls(await UnitBench.start(dut, seed=seed, **pace), seed)
        bench.units.regions.put(*(
            {"number": number, "writable": region.writable, "base16": region.base >> 4,
             "size": region.size} for number, region in REGIONS.items()))

        def address(packed):
            return dict(zip(("handle", "offset"), unpack_address(packed), strict=True))

        bench.units.tables.put(*(
            {"number": number, "last_row": table.last_row, "weights": address(table.weights),
             "row16": table.row_bytes >> 4, "stride16": table.stride >> 4,
             "state": address(table.state), "state4": table.state_bytes >> 2}
            for number, table in TABLES.items()))
        await bench.units.regions.drained()
        await bench.units.tables.drained()
        return bench

    def put(self, command):
        """Send a command, its lists in memory; return its operands."""
        given = command.payload()
        for operand, name in (("source", "rows"), ("targets", "targets")):
            if isinstance(command, Gather):
                octets = np.frombuffer(command.list(name)[0].tobytes(), np.uint8)
                at = given[operand] - SOURCE_LIST
                self.lists[at:at + octets.size] = octets
        self.units.commands.put(given)
        return {**dict.fromkeys(OPERANDS, 0), **given}

    async def check(self, *commands):
        """Each command's outcome is that of the model, and the memories are equal."""
        for number, command in enumerate(commands):
            await self.compare(number, command, self.put(command))

    async def compare(self, number, command, full):
        """The outcome of a command that was sent is that of the model, and the memories equal."""
        want = self.model.execute(full, full)
        got = await with_timeout(self.units.outcomes.get(), 60, "us")
        for name in FIELDS:
            assert getattr(got, name) == int(getattr(want, name)), (
                f"seed {SEED}, command {number}, {name}: {getattr(got, name)}, expected "
                f"{getattr(want, name)}: {command}")
        differ = np.flatnonzero(self.images[0] != self.images[1])
        assert not len(differ), (
            f"seed {SEED}, command {number}: memory differs from {BASE + differ[0]:#x} on: "
            f"{command}")

    def seed(self):
        return int(self.rng.integers(1 << 30))

    def gather(self, count, flags=0, tables=SOURCES, **more):
        return Gather(self.seed(), tables, count, flags, **more)

    def scatter(self, count, flags=0, tables=SINKS, **more):
        """Distinct rows, so that the result does not depend on the order of writes."""
        command = Scatter(self.seed(), tables, count, flags, **more)
        pairs = [(table, row) for table in tables for row in range(16)]
        chosen = self.rng.permutation(len(pairs))[:count]
        command.entries["table"], command.entries["row"] = np.array(pairs)[chosen].T
        return command


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(pace=[(0.0, 0.0), (0.3, 0.3)])
async def commands_equal_the_model(dut, pace):
    bench = await Bench.start(dut, idle=pace[0], stall=pace[1])
    for turn in range(ROUNDS):
        for flags in (0, LISTED, WITH_STATE, LISTED | WITH_STATE)[turn % 2:]:
            count = int(bench.rng.integers(1, 14))
            await bench.check(bench.gather(count, flags), bench.scatter(count, flags))
        for size in (4, 4 * int(bench.rng.integers(2, 250))):
            start, end = (4 * int(at) for at in bench.rng.integers(0, 500, 2))
            await bench.check(
                Span(size, packed_address(0, start), packed_address(1, end)),
                Span(size, destination=packed_address(2, start), pattern=bench.seed()))
    bench.units.finish()
    assert not bench.units.memory.strays


@cocotb.test(timeout_time=400, timeout_unit="us")
async def refused_entries_and_bus_faults(dut):
    """Unknown tables and rows, rows too long, regions that are not there or not writable, for rows
    or their state; the first refused entry is reported, and the others are moved."""
    bench = await Bench.start(dut, stall=0.1)
    beyond = bench.gather(6, LISTED, tables=[4, 0, 6, 7, 15, 3])
    late = bench.gather(9, rows=90)  # some rows are beyond their table
    wraps = bench.gather(4, tables=[1, 7])
    wraps.entries["row"] = 3  # beyond 48 bits of an offset
    await bench.check(
        beyond, late, wraps, bench.gather(4, tables=[4, 0], rows=2, slots=10, stride=1024),
        bench.scatter(6, tables=[0, 8]), bench.scatter(5, tables=[12]),
        replace(bench.gather(3), destination=packed_address(0, 0)),
        replace(bench.gather(5, stride=2048), destination=packed_address(2, 0)),
        bench.gather(4, WITH_STATE, tables=[6, 0]),
        replace(bench.gather(4, WITH_STATE), destination=packed_address(0, 0)),
        bench.gather(5, WITH_STATE, tables=[0, 1, 4]),
        bench.scatter(4, WITH_STATE, tables=[13], state_destination=STATE_SLOTS),
        Span(300, packed_address(0, 4)))
    assert GatherFlag.LISTED == LISTED
    bench.units.finish()


@cocotb.test(timeout_time=400, timeout_unit="us")
async def accesses_across_a_page(dut):
    """Rows and spans whose source or destination crosses 4 KiB."""
    bench = await Bench.start(dut, stall=0.1)
    rows = bench.gather(3, WITH_STATE, tables=[2], destination=packed_address(1, 0xFA0))
    rows.entries["row"] = 10, 3, 10
    await bench.check(
        rows, Span(600, packed_address(0, 0xB00), packed_address(1, 0xF00)),
        Span(300, destination=packed_address(1, 0xF80), pattern=bench.seed()))
    bench.units.finish()


@cocotb.test(timeout_time=400, timeout_unit="us")
async def a_restart_drops_what_is_inside(dut):
    bench = await Bench.start(dut, stall=0.2)
    for cycles in (1, 12, 30, 60, 95):
        for command in (bench.gather(10, LISTED), Span(700, packed_address(0, 4))):
            bench.put(command)
            await ClockCycles(dut.clk, cycles)
            await bench.units.restart(wait=False)
            following = bench.gather(3)
            full = bench.put(following)  # while the ports may drain
            await bench.units.ready()
            bench.images[1][:] = bench.images[0]
            await bench.compare(0, following, full)
        await bench.check(bench.gather(4), Span(100, packed_address(0, 8)))
    bench.units.finish()


@cocotb.test(timeout_time=400, timeout_unit="us")
@cocotb.parametrize(name=["m_axi_list", "m_axi_row0"])
async def a_silent_memory_ends_a_command(dut, name):
    bench = await Bench.start(dut)
    dut.timeout.value = 200
    port = getattr(bench.units, name)
    port.silence()
    bench.put(bench.gather(3))
    assert (await with_timeout(bench.units.outcomes.get(), 60, "us")).status == Status.TIMEOUT
    assert int(dut.stopped.value)
    port.silence(False)
    await ClockCycles(dut.clk, 100)
    await bench.units.restart()
    assert not int(dut.stopped.value)
    bench.images[1][:] = bench.images[0]
    await bench.check(bench.gather(3))


@cocotb.test(timeout_time=200, timeout_unit="us")
async def one_word_a_cycle(dut):
    """A long COPY takes few cycles more than its words."""
    bench = await Bench.start(dut)
    times = []
    for size in (256, 2048):
        start = get_sim_time("ns")
        await bench.check(Span(size, packed_address(0, 0x10), packed_address(1, 0)))
        times.append((get_sim_time("ns") - start) / 10)
    words = (2048 - 256) // bench.config.bus_bytes
    dut._log.info(f"cycles: {times[1] - times[0]:.0f} for {words} words of a COPY")
    assert times[1] - times[0] <= 1.5 * words + 20, f"{times}: {words} words more"
