from dataclasses import dataclass, field, replace
from itertools import cycle

import numpy as np
import pytest
from hotrow_rtl.config import PRESETS, preset
from hotrow_rtl.contract import GatherFlag, Status, packed_address
from hotrow_rtl.layouts import FAULT_DECERR, FAULT_SLVERR, FAULT_TIMEOUT
from hotrow_rtl.row_mover import RowMover
from hotrow_sim.cost.design import memory_bits
from hotrow_sim.cost.row_mover import row_mover_bits
from hotrow_sim.cycles.row_mover import gather_cycles
from hotrow_sim.golden.records import ROW_RECORD
from hotrow_sim.golden.regions import Region, Table
from hotrow_sim.golden.rows import gather
from hotrow_sim.memory import DECERR, SLVERR, Behaviour, MemoryModel
from hotrow_sim.memory.amaranth import read_responder, write_responder
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

TINY = replace(preset("tiny"), tables=8, handles=8)
BASE = 0x7_0000_0000  # where the memory lies
SIZE = 1 << 16
REGIONS = {  # 16-byte steps, not bus words
    0: Region(BASE + 0x410, 0x5000, False),
    1: Region(BASE + 0x6010, 0x6000, True),
    2: Region(BASE + 0xD000, 0x1000, True),
    3: Region(BASE + 0xE000, 0x1000, False),
}
TABLES = {
    0: Table(63, packed_address(0, 0), 64, 80, packed_address(3, 4), 4),
    1: Table(200, packed_address(0, 0x1450), 16, 16, packed_address(3, 0x200), 8),
    2: Table(15, packed_address(0, 0x100), 256, 272, packed_address(3, 0x900), 32),
    3: Table(40, packed_address(0, 0x1030), 48, 64),
    4: Table(1, packed_address(0, 0), 1024, 1024),  # longer than the card carries
    5: Table(1 << 31, packed_address(0, 0x20), 16, 65520, packed_address(0, 0), 4),
    6: Table(30, packed_address(2, 0x800), 64, 64, packed_address(6, 0), 4),  # no state region
}
DESTINATION, STATE = packed_address(1, 0x20), packed_address(2, 4)
LISTED, WITH_STATE = GatherFlag.LISTED, GatherFlag.STATE
SOURCE_LIST, TARGET_LIST = 0x1000, 0x2000  # addresses of the lists, which have a port of their own
FAULTS = {SLVERR: Status.SLVERR, DECERR: Status.DECERR}
CALM = Behaviour()
ROUGH = dict(stall_address=0.3, stall_data=0.3, stall_response=0.3, jitter=30, latency=5,
             out_of_order=True, interleave=True)


class Image:
    """The memory as the golden model sees it."""

    def __init__(self, octets):
        self.octets = octets

    def view(self, address, size, write=False):
        return self.octets[address - BASE:address - BASE + size]

    def write(self, address, octets):
        self.view(address, octets.size)[:] = octets
        return 0


@dataclass
class Gather:
    """One command and its lists, drawn at random."""

    seed: int
    tables: list
    count: int
    flags: int = 0
    stride: int = 256
    destination: int = DESTINATION
    state_destination: int = STATE
    slots: int = 40
    rows: int = 16
    entry_faults: dict = field(default_factory=dict)
    slot_faults: dict = field(default_factory=dict)

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.entries = np.zeros(self.count, ROW_RECORD)
        self.entries["table"] = rng.choice(self.tables, self.count)
        self.entries["row"] = rng.integers(0, self.rows, self.count)
        self.targets = rng.permutation(max(self.slots, self.count))[:self.count].astype("<u4")

    def expect(self, image, config):
        """What the golden model makes of it, `image` included."""
        def faults(by_position, element_bytes):  # a fault is that of a whole bus word
            word = np.arange(self.count) * element_bytes // config.bus_bytes
            told = np.zeros(self.count, int)
            for position, fault in by_position.items():
                told[word == word[position]] = fault
            return told
        slots = self.targets if self.flags & LISTED else np.arange(self.count)
        return gather(self.payload(), self.entries, slots, TABLES, REGIONS, Image(image), config,
                      faults(self.entry_faults, 8),
                      faults(self.slot_faults, 4) if self.flags & LISTED else 0)

    def payload(self):
        return {"flags": int(self.flags), "source": SOURCE_LIST, "targets": TARGET_LIST,
                "destination": self.destination, "state_destination": self.state_destination,
                "count": self.count, "stride": self.stride}


class Bench:
    """A row mover between a memory model and lists that come from Python."""

    def __init__(self, config, read=CALM, write=CALM, timeout=0, seed=0, gaps=STEADY):
        self.config, self.gaps = config, gaps
        self.dut = RowMover(config)
        self.bench = StreamBench(self.dut)
        self.image = np.random.default_rng(seed).integers(0, 256, SIZE, np.uint8)
        self.model = MemoryModel()
        self.model.map(self.image, BASE)
        self.read = self.model.read_port(config.bus_bytes, read)
        self.write = self.model.write_port(config.bus_bytes, write)
        self.bench.background(read_responder(self.dut.read_bus, self.read))
        self.bench.background(write_responder(self.dut.write_bus, self.write))
        self.bench.background(self._lists(self.dut.rows, "entries", 8, "entry_faults"))
        self.bench.background(self._lists(self.dut.targets, "targets", 4, "slot_faults"))
        self.timeout, self.current = timeout, None

    async def register(self, ctx):
        """Fill tables and regions."""
        ctx.set(self.dut.timeout, self.timeout)
        await ctx.tick().until(self.dut.ready)

        async def commit(port, index, entry):
            ctx.set(port.index, index)
            ctx.set(port.entry, entry)
            ctx.set(port.enable, 1)
            await ctx.tick()
            ctx.set(port.enable, 0)

        def address(packed):
            return {"offset": packed & (1 << 48) - 1, "handle": packed >> 48}

        for handle, region in REGIONS.items():
            await commit(self.dut.region_update, handle, {
                "valid": 1, "writable": region.writable, "base16": region.base >> 4,
                "size": region.size})
        for number, table in TABLES.items():
            await commit(self.dut.table_update, number, {
                "valid": 1, "last_row": table.last_row, "weights": address(table.weights),
                "row16": table.row_bytes >> 4, "stride16": table.stride >> 4,
                "state": address(table.state), "state4": table.state_bytes >> 2})

    async def submit(self, ctx, command):
        self.current = command
        engine = self.dut.engine.command
        ctx.set(engine.payload, command.payload())
        ctx.set(engine.valid, 1)
        await ctx.tick().until(engine.ready)
        ctx.set(engine.valid, 0)

    async def outcome(self, ctx):
        port = self.dut.engine.outcome
        ctx.set(port.ready, 1)
        payload, = await ctx.tick().sample(port.payload).until(port.valid)
        ctx.set(port.ready, 0)
        return payload

    def run(self, commands, limit=20000):
        """Carry out commands one after another; return what their outcomes say, and the cycles
        from the first command on."""
        told = []

        async def drive(ctx):
            await self.register(ctx)
            self.started = self.bench.cycles
            for command in commands:
                await self.submit(ctx, command)
                told.append(await self.outcome(ctx))
                assert ctx.get(self.dut.idle), "an outcome came before its writes were answered"
        self.bench.process("commands", drive)
        cycles = self.bench.run(limit) - self.started
        self.model.check()
        return told, cycles

    def _lists(self, fetch, name, element_bytes, faults_name):
        """A list port: serve the current command's list, forget it at a restart."""
        bus_bytes = self.config.bus_bytes

        def words(size):
            octets = getattr(self.current, name).tobytes()
            assert size == len(octets)
            faults = {position * element_bytes // bus_bytes: fault for position, fault in
                      getattr(self.current, faults_name).items()}
            return [{"data": int.from_bytes(octets[at:at + bus_bytes], "little"),
                     "fault": faults.get(at // bus_bytes, 0), "last": at + bus_bytes >= size}
                    for at in range(0, size, bus_bytes)]

        async def serve(ctx):
            gaps, left, gap = cycle(self.gaps), [], 0
            while True:
                ctx.set(fetch.request.ready, not left)
                ctx.set(fetch.words.valid, bool(left) and not gap)
                if left:
                    ctx.set(fetch.words.payload, left[0])
                _, _, restart, asked, size, taken = await ctx.tick().sample(
                    self.dut.restart, fetch.request.valid & fetch.request.ready,
                    fetch.request.p.bytes, fetch.words.valid & fetch.words.ready)
                gap = next(gaps) if taken else max(0, gap - 1)
                if asked:
                    left = words(size)
                if taken:
                    left = left[1:]
                if restart:
                    left = []
        return serve


def compare(bench, commands, **limits):
    """Run commands; outcomes and all of memory must be the golden model's. Return them."""
    expected_image = bench.image.copy()
    told, cycles = bench.run(commands, **limits)
    expected = [command.expect(expected_image, bench.config) for command in commands]
    for number, (got, want) in enumerate(zip(told, expected)):
        assert (Status(got.status), got.error_index, got.error_address, got.entries,
                got.bytes) == (want.status, want.error_index, want.error_address, want.entries,
                               want.bytes), f"command {number}, seed {commands[number].seed}"
        assert not any((got.lookups, got.hits, got.misses, got.unique, got.popular, got.refused))
    differ = np.flatnonzero(bench.image != expected_image)
    assert not len(differ), f"memory differs from {differ[0]:#x} on, seed {commands[0].seed}"
    return expected, cycles


BUSES = {16: TINY, 32: replace(TINY, bus_bytes=32, outstanding=1),
         64: replace(TINY, bus_bytes=64, outstanding=16, row_bytes=256)}


SLOW = pytest.mark.slow


@pytest.mark.parametrize("bus_bytes", [16, pytest.param(32, marks=SLOW), 64])
@pytest.mark.parametrize("gaps, behaviour", [(STEADY, {}), (RAGGED, ROUGH)], ids=["calm", "rough"])
def test_memory_equals_golden(bus_bytes, gaps, behaviour):
    port = Behaviour(seed=5, **behaviour)
    bench = Bench(BUSES[bus_bytes], port, port, gaps=gaps)
    got, _ = compare(bench, [
        Gather(1, [0, 1, 2, 3], 8),
        Gather(2, [0, 0, 1, 1, 3], 20, LISTED, destination=packed_address(1, 0x10), stride=400),
        Gather(3, [0], 10, WITH_STATE, stride=64),
        Gather(4, [1, 3], 20, LISTED | WITH_STATE, stride=48, slots=200),
        Gather(5, [2], 6, WITH_STATE, state_destination=packed_address(2, 0x14)),
    ])
    assert all(outcome.status == Status.OK for outcome in got)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=SLOW) for n in range(2, 6))])
def test_refusals_equal_golden(seed):
    destination = packed_address(*[(1, 0x20), (1, 0x5800), (0, 0), (1, 8), (7, 0),
                                   (1, (1 << 48) - 2048)][seed])
    state = packed_address(*[(2, 0xFD0), (3, 0), (2, 2), (2, (1 << 48) - 64), (9, 0), (2, 4)][seed])
    commands = [
        Gather(seed, [0, 1, 2, 3, 5, 6], 20, WITH_STATE | LISTED, rows=66, state_destination=state,
               entry_faults={seed + 9: FAULT_SLVERR}, slot_faults={seed + 4: FAULT_TIMEOUT}),
        Gather(seed + 50, [0, 0, 0, 2], 16, WITH_STATE, rows=16, state_destination=state),
        Gather(seed + 100, [0, 1, 3], 20, rows=16, destination=destination),
        Gather(seed + 200, [*TABLES, 7, 8, 1 << 31], 16, rows=1 << 31, stride=64,
               slot_faults={0: FAULT_DECERR}),
    ]
    got, _ = compare(Bench(TINY, seed=seed), commands)
    assert sum(outcome.status != Status.OK for outcome in got) >= 3


def test_every_status_is_told_with_its_lowest_index():
    commands = [
        Gather(1, [0], 8, entry_faults={6: FAULT_DECERR}),
        Gather(2, [0], 8, LISTED, slot_faults={4: FAULT_SLVERR}),
        Gather(3, [7], 3),
        Gather(4, [8], 3),
        Gather(5, [2], 4, rows=1),
        Gather(6, [2], 4, stride=240),
        Gather(7, [4], 4, stride=2048, rows=1),
        Gather(8, [5], 4),
        Gather(9, [0], 4, destination=packed_address(1, 0x6000 - 0x140)),
        Gather(10, [0], 4, destination=packed_address(3, 0)),
        Gather(11, [0], 4, destination=packed_address(1, 8)),
        Gather(12, [6], 4, WITH_STATE),
        Gather(13, [0], 4, WITH_STATE, state_destination=packed_address(3, 0)),
        Gather(14, [0], 4, WITH_STATE, state_destination=packed_address(2, 2)),
        Gather(15, [0], 4, WITH_STATE, state_destination=packed_address(2, 0x1000 - 8)),
    ]
    commands[4].entries["row"][2] = 16
    commands[7].entries["row"][:] = (0, 1 << 31, 1, (1 << 31) + 1)
    got, _ = compare(Bench(TINY), commands)
    assert [outcome.status for outcome in got] == [
        Status.DECERR, Status.SLVERR, Status.TABLE_UNKNOWN, Status.TABLE_UNKNOWN,
        Status.ROW_OUT_OF_RANGE, Status.STRIDE, Status.STRIDE, Status.REGION, Status.REGION,
        Status.READ_ONLY, Status.MISALIGNED, Status.REGION, Status.READ_ONLY, Status.MISALIGNED,
        Status.REGION]
    assert [outcome.error_index for outcome in got][:9] == [6, 4, 0, 0, 2, 0, 0, 1, 2]


def test_later_entry_wins_a_slot():
    command = Gather(1, [0], 24, LISTED, stride=64)
    command.targets[:] = 3
    compare(Bench(TINY, Behaviour(seed=3, **ROUGH), Behaviour(seed=4, **ROUGH)), [command])


@pytest.mark.parametrize("config", BUSES.values(), ids=BUSES)
def test_pages_are_not_crossed(config):
    # Row 10 of table 2 and slot 3 begin 0x60 and 0x10 bytes before a page; the memory model
    # refuses bursts that cross one.
    command = Gather(1, [2], 16, destination=packed_address(1, 0xFE0 - 3 * 256))
    command.entries["row"] = range(16)
    bench = Bench(config)
    compare(bench, [command])
    assert bench.write.statistics.bursts == bench.read.statistics.bursts == 17


def fault_case(on_read, beat, response):
    """Four rows of 64 bytes on a 16-byte bus with one faulty beat; the bench and its outcome."""
    bench = Bench(TINY)
    command = Gather(1, [0], 4, stride=64)
    (bench.read if on_read else bench.write).fail_beat(beat, response)
    before = bench.image.copy()
    (got,), _ = bench.run([command])
    return bench, command, before, got


@pytest.mark.parametrize("response", FAULTS)
@pytest.mark.parametrize("beat", [8, 9, 11], ids=["first", "middle", "last"])
def test_a_read_fault_refuses_its_row_only(beat, response):
    bench, command, before, got = fault_case(True, beat, response)
    expected = before.copy()
    command.expect(expected, TINY)
    slot = REGIONS[1].base - BASE + 0x20 + 2 * 64
    expected[slot:slot + 64] = before[slot:slot + 64]
    np.testing.assert_array_equal(bench.image, expected)
    assert (got.status, got.error_index, got.entries, got.bytes) == (FAULTS[response], 2, 3, 192)
    assert got.error_address == packed_address(0, int(command.entries["row"][2]) * 80)


@pytest.mark.parametrize("response", FAULTS)
@pytest.mark.parametrize("beat", [4, 5, 7], ids=["first", "middle", "last"])
def test_a_write_fault_is_told(beat, response):
    _, _, _, got = fault_case(False, beat, response)
    assert (got.status, got.error_index, got.entries, got.bytes) == (FAULTS[response], 1, 3, 192)
    assert got.error_address == DESTINATION + 64


def test_the_lowest_of_faults_and_refusals_is_told():
    # The refusal is known long before the fault of a row in front of it.
    bench = Bench(TINY, Behaviour(latency=100))
    command = Gather(1, [0], 8, stride=64)
    command.entries["table"][5] = 7
    bench.read.fail_beat(8)
    (got,), _ = bench.run([command])
    assert (got.status, got.error_index, got.entries) == (Status.SLVERR, 2, 6)
    bench = Bench(TINY, Behaviour(latency=100))
    command.entries["table"][1] = 7
    bench.read.fail_beat(8)
    (got,), _ = bench.run([command])
    assert (got.status, got.error_index, got.entries) == (Status.TABLE_UNKNOWN, 1, 5)


@pytest.mark.parametrize("on_read", [True, False], ids=["read", "write"])
@pytest.mark.parametrize("accept", [True, False], ids=["no-answer", "no-ready"])
def test_a_dead_memory_stops_the_port(on_read, accept):
    """A port that dies in mid-command answers TIMEOUT until a restart, and then works again."""
    bench = Bench(TINY, timeout=50)
    dut = bench.dut
    died = []

    async def drive(ctx):
        await bench.register(ctx)
        port = bench.read if on_read else bench.write
        port.silence(bench.bench.cycles + 60, bench.bench.cycles + 600, accept=accept)
        for _ in range(2):
            await bench.submit(ctx, Gather(1, [0], 24, stride=64))
            died.append(await bench.outcome(ctx))
            assert ctx.get(dut.read_stopped) == on_read
            assert ctx.get(dut.write_stopped) == (not on_read)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        await ctx.tick().until(dut.idle)
        assert bench.bench.cycles > 600, "idle before the memory answered"
        assert not ctx.get(dut.read_stopped | dut.write_stopped)
        bench.expected = bench.image.copy()
        await bench.submit(ctx, Gather(2, [0, 1, 2], 24))
        bench.got = await bench.outcome(ctx)
    bench.bench.process("commands", drive)
    bench.bench.run(5000)
    bench.model.check()
    first, second = died
    assert first.status == second.status == Status.TIMEOUT
    assert second.error_index == 0 and second.entries == second.bytes == 0
    assert 0 < first.entries < 24 and first.error_index == first.entries
    row = int(Gather(1, [0], 24).entries["row"][first.error_index])
    assert first.error_address == (packed_address(0, row * 80) if on_read
                                   else DESTINATION + 64 * first.error_index)
    want = Gather(2, [0, 1, 2], 24).expect(bench.expected, TINY)
    assert bench.got.status == want.status == Status.OK
    np.testing.assert_array_equal(bench.image, bench.expected)


@pytest.mark.parametrize("after", [
    20, 61, 90, *(pytest.param(n, marks=SLOW) for n in (1, 30, 50, 62, 150))])
def test_restart_in_flight(after):
    """A restart at any time leaves a mover that carries out the next command."""
    rough = dict(ROUGH, latency=20)
    bench = Bench(TINY, Behaviour(seed=after, **rough), Behaviour(seed=after, **rough))
    dut = bench.dut

    async def drive(ctx):
        await bench.register(ctx)
        await bench.submit(ctx, Gather(1, [0, 2], 24, WITH_STATE))
        await ctx.tick().repeat(after)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        await ctx.tick().until(dut.idle)
        assert not bench.read.statistics.worst_outstanding or bench.read.idle
        assert bench.write.idle
        bench.expected = bench.image.copy()
        await bench.submit(ctx, Gather(2, [0, 1, 2], 24))
        bench.got = await bench.outcome(ctx)

    bench.bench.process("commands", drive)
    bench.bench.run(5000)
    bench.model.check()
    want = Gather(2, [0, 1, 2], 24).expect(bench.expected, TINY)
    assert (bench.got.status, bench.got.entries) == (want.status, want.entries)
    np.testing.assert_array_equal(bench.image, bench.expected)


def aligned_rows(config, count, row_bytes, stride, read_latency, write_latency, flags=0):
    """Gather rows that lie alike in source and destination and cross no page; bench, cycles."""
    bench = Bench(config, Behaviour(latency=read_latency), Behaviour(latency=write_latency))
    command = Gather(1, [0], count, LISTED | flags, stride=stride,
                     destination=packed_address(1, 0xFF0))  # byte address: a page's start
    command.targets %= 4096 // stride
    table = Table(63, packed_address(0, 0xBF0), row_bytes, stride, packed_address(3, 0), 4)
    return bench, command, table


@pytest.mark.parametrize("bus_bytes, outstanding, row_bytes, reads, writes", [
    (16, 4, 64, 1, 1), (16, 16, 64, 64, 64), (32, 8, 64, 20, 100), (64, 16, 64, 64, 20),
    pytest.param(16, 4, 256, 20, 5, marks=SLOW), pytest.param(16, 1, 16, 10, 40, marks=SLOW),
    pytest.param(64, 32, 1024, 100, 100, marks=SLOW)])
def test_cycles_follow_the_model(monkeypatch, bus_bytes, outstanding, row_bytes, reads, writes):
    config = replace(TINY, bus_bytes=bus_bytes, outstanding=outstanding, row_bytes=1024)
    bench, command, table = aligned_rows(config, 40, row_bytes, row_bytes, reads, writes)
    monkeypatch.setitem(TABLES, 0, table)
    command.entries["row"] %= 4096 // row_bytes
    _, cycles = compare(bench, [command])
    words = [max(1, row_bytes // bus_bytes)] * 40
    model = gather_cycles(config, words, reads, writes, first_word=1)
    assert abs(model - cycles) <= 0.02 * cycles, f"model {model}, hardware {cycles}"


@pytest.mark.parametrize("bus_bytes, outstanding", [(16, 32), (64, 128)])
def test_one_bus_word_per_cycle_behind_latency(monkeypatch, bus_bytes, outstanding):
    """Rows of 64 bytes at a latency of 64: the data channel never idles once it has begun."""
    config = replace(TINY, bus_bytes=bus_bytes, outstanding=outstanding)
    bench, command, table = aligned_rows(config, 150, 64, 64, 64, 64)
    monkeypatch.setitem(TABLES, 0, table)
    compare(bench, [command])
    statistics = bench.read.statistics
    assert statistics.last_beat - statistics.first_request == 64 + statistics.beats - 1


@pytest.mark.parametrize("config", [*PRESETS.values(), BUSES[32]],
                         ids=[*PRESETS, "one outstanding"])
def test_memory_bits(config):
    assert memory_bits(RowMover(config)) == row_mover_bits(config)
