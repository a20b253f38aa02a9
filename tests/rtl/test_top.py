"""The whole accelerator in Amaranth's simulator: registers, rings, engines, memory."""

from dataclasses import replace

import numpy as np
import pytest
from amaranth import Signal
from hotrow_rtl import top
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import (
    IDENTITY,
    MISS_FLAG,
    NO_SLOT,
    Opcode,
    Status,
    packed_address,
)
from hotrow_rtl.host.engine_watchdog import EngineWatchdog
from hotrow_rtl.mover.engine import RowMover
from hotrow_rtl.top import RESULT_CLIENTS, Top, result_ports
from hotrow_sim.golden.records import (
    COMMAND_RECORD,
    COMPLETION_RECORD,
    HARVEST_RECORD,
    ROW_RECORD,
    decode,
    encode,
)
from hotrow_sim.memory import SLVERR, Behaviour, MemoryModel

from tests.support.axi_lite_master import AXI4LiteMaster
from tests.support.axi_responders import read_responder, write_responder
from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
# The units that these tests use, and one lane: the full card takes several times as long.
PLAIN = replace(TINY, name="plain", arithmetic=0, planner=False)
CONFIG = replace(PLAIN, name="small", bus_bytes=8, lookup_lanes=1, lane_banks=1, burst_beats=8,
                 row_ports=1)
QUEUES = ("LOOKUP", "MOVE")
MEMORY_AT, MEMORY_BYTES = 0x4000_0000, 1 << 16
RING_BYTES = 8 * 128
HANDLE = 2  # of the region of the whole buffer
ROWS, DIM = 50, 16
NEAR = Behaviour(latency=5)
FAR = Behaviour(latency=30, jitter=20, out_of_order=True, stall_address=0.2, stall_data=0.2,
                stall_response=0.2, seed=1)


class Card:
    """A host with an accelerator and one buffer in their shared memory."""

    def __init__(self, config=CONFIG, behaviour=NEAR, dut=None):
        self.config, self.dut = config, dut or built(Top, config)
        self.buffer = np.zeros(MEMORY_BYTES, np.uint8)
        self.used = 0
        self.rings = {queue: (self.place(RING_BYTES), self.place(RING_BYTES)) for queue in QUEUES}
        self.submitted = dict.fromkeys(QUEUES, 0)
        self.memory = MemoryModel()
        self.memory.map(self.buffer, MEMORY_AT)
        self.bench = StreamBench(self.dut)
        self.master = AXI4LiteMaster(self.dut.registers)
        self.ports = {}
        for name in self.dut.signature.members:
            bus = getattr(self.dut, name)
            if name in ("registers", "interrupt"):
                continue
            reads = hasattr(bus, "arvalid")
            make, respond = ((self.memory.read_port, read_responder) if reads
                             else (self.memory.write_port, write_responder))
            self.ports[name] = make(config.bus_bytes, behaviour)
            self.bench.background(respond(bus, self.ports[name]))

    def run(self, scenario, limit=8000):
        async def prepared(ctx):
            await self._prepare(ctx)
            await scenario(ctx, self)
        self.bench.process("scenario", prepared)
        return self.bench.run(limit)

    def place(self, size, data=None):
        """Reserve bytes of the buffer at a multiple of 64; return the offset."""
        offset, self.used = self.used, -(-(self.used + size) // 64) * 64
        assert self.used <= MEMORY_BYTES
        if data is not None:
            self.buffer[offset:offset + size] = np.ascontiguousarray(data).view(np.uint8).ravel()
        return offset

    def put(self, array):
        array = np.ascontiguousarray(array)
        return self.place(array.nbytes, array)

    def get(self, offset, dtype, count):
        return self.buffer[offset:offset + np.dtype(dtype).itemsize * count].view(dtype).copy()

    async def _prepare(self, ctx):
        await self.ready(ctx)
        await self.region(ctx, HANDLE)
        for queue in QUEUES:
            await self.enable(ctx, queue)

    async def ready(self, ctx):
        while not await self.master.read_value(ctx, "STATUS") & 1:
            pass

    async def region(self, ctx, handle, writable=1):
        write = self.master.write
        await write(ctx, "REGION_HANDLE", handle)
        await self.master.write_wide(ctx, "REGION_BASE", MEMORY_AT)
        await self.master.write_wide(ctx, "REGION_SIZE", MEMORY_BYTES)
        await write(ctx, "REGION_COMMIT", writable << 1 | 1)

    async def table(self, ctx, number, weights):
        write = self.master.write
        await write(ctx, "TABLE_NUMBER", number)
        await write(ctx, "TABLE_LAST_ROW", ROWS - 1)
        await self.master.write_wide(ctx, "TABLE_WEIGHTS", packed_address(HANDLE, weights))
        await write(ctx, "TABLE_ROW", 4 * DIM << 16 | 4 * DIM)
        await write(ctx, "TABLE_COMMIT", 1)

    async def enable(self, ctx, queue):
        commands, completions = self.rings[queue]
        await self.master.write_wide(ctx, f"{queue}_COMMANDS", packed_address(HANDLE, commands))
        await self.master.write_wide(ctx, f"{queue}_COMPLETIONS",
                                     packed_address(HANDLE, completions))
        await self.master.write(ctx, f"{queue}_ENTRIES", 3)
        await self.master.write(ctx, f"{queue}_CONTROL", 1)
        self.submitted[queue] = 0

    async def submit(self, ctx, queue, opcode, **fields):
        """Submit one command; its address operands are offsets into the buffer."""
        for name in fields.keys() & {"source", "slots", "popular", "nonpopular", "misses",
                                     "destination", "lengths", "targets"}:
            fields[name] = packed_address(HANDLE, fields[name])
        number = self.submitted[queue]
        offset = self.rings[queue][0] + number % 8 * 128
        self.buffer[offset:offset + 128] = encode(
            COMMAND_RECORD, opcode=opcode, tag=number, **fields)
        self.submitted[queue] = number + 1
        await self.master.write(ctx, f"{queue}_TAIL", number + 1)

    async def completed(self, ctx, queue):
        """Wait for all completions of a queue; return the last one."""
        while await self.master.read_value(ctx, f"{queue}_COMPLETED") != self.submitted[queue]:
            await ctx.tick().repeat(20)
        return self.completion(queue, self.submitted[queue] - 1)

    def completion(self, queue, number):
        offset = self.rings[queue][1] + number % 8 * 128
        return decode(COMPLETION_RECORD, self.buffer[offset:offset + 128])

    async def do(self, ctx, queue, opcode, **fields):
        await self.submit(ctx, queue, opcode, **fields)
        return await self.completed(ctx, queue)


def weights():
    return np.random.default_rng(7).integers(0, 1 << 32, (ROWS, DIM), dtype=np.uint32)


async def learn_split_gather(ctx, card):
    """Count, harvest, install, split and gather a batch of two tables."""
    tables = weights(), weights() + 1
    for number, table in enumerate(tables):
        await card.table(ctx, number, card.put(table))
    ids = np.array([[3, 4], [3, 5], [9, 4], [3, 4]], np.uint32)
    source, slots = card.put(ids), card.place(64)
    batch = {"source": source, "count": 8, "samples": 4, "first_table": 0, "table_count": 2}

    observed = await card.do(ctx, "LOOKUP", Opcode.OBSERVE, **batch)
    assert observed["status"] == Status.OK
    assert (observed["lookups"], observed["hits"], observed["misses"]) == (8, 4, 4)

    hot = card.place(64)
    harvested = await card.do(ctx, "LOOKUP", Opcode.HARVEST, destination=hot, count=2,
                              threshold=1)
    assert (harvested["status"], harvested["entries"]) == (Status.OK, 2)
    entries = card.get(hot, HARVEST_RECORD, 2)
    assert {tuple(entry) for entry in entries} == {(3, 0, 3), (4, 1, 3)}

    rows = np.zeros(2, ROW_RECORD)
    rows["row"], rows["table"] = entries["row"], entries["table"]
    installed = await card.do(ctx, "LOOKUP", Opcode.INSTALL, source=card.put(rows), slots=slots,
                              count=2)
    assert (installed["status"], installed["entries"]) == (Status.OK, 2)
    slot = dict(zip(map(tuple, rows), card.get(slots, np.uint32, 2), strict=True))
    assert NO_SLOT not in slot.values() and len(set(slot.values())) == 2

    results = {name: card.place(64) for name in ("slots", "popular", "nonpopular", "misses")}
    split = await card.do(ctx, "LOOKUP", Opcode.SPLIT, **batch, **results)
    assert split["status"] == Status.OK
    assert (split["hits"], split["misses"], split["unique"], split["popular"]) == (6, 2, 2, 2)
    hit = slot[3, 0], slot[4, 1]
    assert card.get(results["slots"], np.uint32, 8).tolist() == [
        *hit, hit[0], MISS_FLAG, MISS_FLAG | 1, hit[1], *hit]
    assert card.get(results["popular"], np.uint32, 2).tolist() == [0, 3]
    assert card.get(results["nonpopular"], np.uint32, 2).tolist() == [1, 2]
    misses = card.get(results["misses"], ROW_RECORD, 2)
    assert [tuple(miss) for miss in misses] == [(5, 1), (9, 0)]

    destination = card.place(2 * 4 * DIM)
    gathered = await card.do(ctx, "MOVE", Opcode.GATHER, source=results["misses"], count=2,
                             destination=destination, stride=4 * DIM)
    assert (gathered["status"], gathered["entries"], gathered["bytes"]) == (
        Status.OK, 2, 2 * 4 * DIM)
    copies = card.get(destination, np.uint32, 2 * DIM).reshape(2, DIM)
    np.testing.assert_array_equal(copies, [tables[1][5], tables[0][9]])


@pytest.mark.parametrize("config, behaviour", [
    pytest.param(TINY, NEAR, marks=pytest.mark.long),
    pytest.param(CONFIG, NEAR, marks=pytest.mark.long),
    pytest.param(PLAIN, FAR, marks=pytest.mark.long),
    pytest.param(replace(PLAIN, name="two ports", result_ports=2, bus_bytes=32,
                         directory_sets=128), FAR, marks=pytest.mark.long),
    pytest.param(replace(PLAIN, name="four ports", result_ports=4, directory_choices=1,
                         bus_bytes=64, directory_sets=256), FAR, marks=pytest.mark.long),
], ids=["near", "small", "far", "two result ports", "one choice, four result ports"])
def test_learn_split_gather(config, behaviour):
    card = Card(config, behaviour)
    card.run(learn_split_gather, limit=20000)
    card.memory.check()


@pytest.mark.parametrize("ports, shared", [
    (1, [["list 0", "list 3", "list 4", "list 1"]]),
    (2, [["list 3", "list 4"], ["list 0", "list 1"]]),
    (4, [["list 0"], ["list 3"], ["list 4"], ["list 1"]]),
])
def test_result_ports(ports, shared):
    found = result_ports(replace(CONFIG, result_ports=ports))
    first = tuple(RESULT_CLIENTS)[:4]
    assert [[name for name in names if name in first] for names in found] == shared
    assert sorted(name for names in found for name in names) == sorted(RESULT_CLIENTS)


@pytest.mark.parametrize("ports", [0, 3, 8])
def test_other_numbers_of_result_ports_are_refused(ports):
    with pytest.raises(ValueError, match=f"result_ports must be 1 for all .*not {ports}"):
        replace(CONFIG, result_ports=ports)


@pytest.mark.long
def test_registers_events_and_memory_errors():
    """Events between the queues, the interrupt, then a slave error in a batch and in a ring."""
    async def scenario(ctx, card):
        master = card.master
        assert await master.read_value(ctx, "IDENTITY") == IDENTITY
        await master.write(ctx, "CONTROL", 0b010)
        await card.submit(ctx, "MOVE", Opcode.WAIT, event=1, value=5)
        await card.submit(ctx, "LOOKUP", Opcode.SIGNAL, event=1, value=5)
        assert (await card.completed(ctx, "MOVE"))["status"] == Status.OK
        moved, signalled = card.completion("MOVE", 0), card.completion("LOOKUP", 0)
        assert moved["end"] > signalled["start"], "the move queue waited"
        assert await master.read_value(ctx, "INTERRUPT") == 0b11
        assert ctx.get(card.dut.interrupt)
        await master.write(ctx, "INTERRUPT", 0b01)
        assert not ctx.get(card.dut.interrupt), "only the interrupt of the lookup queue is enabled"
        await master.write(ctx, "EVENT_SELECT", 1)
        assert await master.read_value(ctx, "EVENT_VALUE") == 5
        now = await master.read_value(ctx, "CYCLE_LOW")
        assert moved["end"] < now < moved["end"] + 500
        await master.write(ctx, "MOVE_TAIL", 100)
        assert await master.read_value(ctx, "FAULT") == 0b010

        await card.table(ctx, 0, card.put(weights()))
        source = card.put(np.arange(4, dtype=np.uint32))
        card.ports["list_bus"].fail_range(MEMORY_AT + source, 16, SLVERR)
        batch = {"source": source, "count": 4, "samples": 4, "table_count": 1}
        failed = await card.do(ctx, "LOOKUP", Opcode.OBSERVE, **batch)
        assert failed["status"] == Status.SLVERR and failed["lookups"] == 0
        assert (await card.do(ctx, "LOOKUP", Opcode.NOP))["status"] == Status.OK

        ring = card.rings["LOOKUP"][0] + card.submitted["LOOKUP"] * 128
        card.ports["list_bus"].fail_range(MEMORY_AT + ring, 128, SLVERR)
        await card.submit(ctx, "LOOKUP", Opcode.NOP)
        while not (state := await card.master.read_value(ctx, "LOOKUP_STATE")) & 0b1000:
            pass
        assert state >> 8 == Status.SLVERR
        assert (await card.do(ctx, "MOVE", Opcode.NOP))["status"] == Status.OK
    card = Card()
    card.run(scenario)
    card.memory.check()


@pytest.mark.parametrize("behaviour, cycles", [
    pytest.param(NEAR, (90,), marks=pytest.mark.long),
    pytest.param(FAR, (10, 60, 110, 150, 230), marks=pytest.mark.long)], ids=["near", "far"])
def test_soft_reset_in_flight_keeps_the_tables(behaviour, cycles):
    """Counters, directory, regions and tables stay; the commands in progress are dropped."""
    async def scenario(ctx, card):
        await card.table(ctx, 0, card.put(weights()))
        ids = card.put(np.arange(ROWS, dtype=np.uint32) % 7)
        batch = {"source": ids, "count": ROWS, "samples": ROWS, "table_count": 1}
        rows = np.zeros(8, ROW_RECORD)
        rows["row"] = range(8)
        source, slots, again = card.put(rows), card.place(64), card.place(64)
        listed = {"source": source, "count": 8}
        await card.do(ctx, "LOOKUP", Opcode.INSTALL, slots=slots, **listed)

        results = {name: card.place(4 * ROWS + 64) for name in
                   ("slots", "popular", "nonpopular")} | {"misses": card.place(8 * ROWS)}
        lost, destination = card.place(8 * 4 * DIM), card.place(8 * 4 * DIM)
        for after in cycles:
            await card.submit(ctx, "LOOKUP", Opcode.SPLIT, **batch, **results)
            await card.submit(ctx, "MOVE", Opcode.GATHER, source=source, count=8,
                              destination=lost, stride=4 * DIM)
            await ctx.tick().repeat(after)
            await card.master.write(ctx, "CONTROL", 1)
            await card.ready(ctx)
            for queue in QUEUES:
                await card.enable(ctx, queue)

            repeated = await card.do(ctx, "LOOKUP", Opcode.INSTALL, slots=again, **listed)
            assert (repeated["status"], repeated["hits"]) == (Status.OK, 8)
            assert (card.get(again, np.uint32, 8) == card.get(slots, np.uint32, 8)).all()
            split = await card.do(ctx, "LOOKUP", Opcode.SPLIT, **batch, **results)
            assert (split["status"], split["hits"], split["popular"]) == (Status.OK, ROWS, ROWS)
            card.buffer[destination:destination + 8 * 4 * DIM] = 0
            moved = await card.do(ctx, "MOVE", Opcode.GATHER, source=source, count=8,
                                  destination=destination, stride=4 * DIM)
            assert (moved["status"], moved["entries"]) == (Status.OK, 8)
            copies = card.get(destination, np.uint32, 8 * DIM).reshape(8, DIM)
            np.testing.assert_array_equal(copies, weights()[:8])
    card = Card(behaviour=behaviour)
    card.run(scenario, limit=60000)
    card.memory.check()


class StillMover(RowMover):
    """Its first command never ends, and no memory port waits."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        restarted = Signal()
        with m.If(self.restart):
            m.d.sync += restarted.eq(1)
        with m.If(~restarted):
            m.d.comb += self.engine.outcome.valid.eq(0)
        return m


class QuickWatchdog(EngineWatchdog):
    def __init__(self, config, queues):
        super().__init__(config, queues)
        self.quiet_log2 = 9


@pytest.mark.long
def test_soft_reset_recovers_from_a_still_engine(monkeypatch):
    monkeypatch.setattr(top, "RowMover", StillMover)
    monkeypatch.setattr(top, "EngineWatchdog", QuickWatchdog)

    async def scenario(ctx, card):
        master = card.master
        await card.table(ctx, 0, card.put(weights()))
        listed = {"source": card.put(np.zeros(8, ROW_RECORD)), "count": 8, "stride": 4 * DIM,
                  "destination": card.place(8 * 4 * DIM)}
        await master.write(ctx, "TIMEOUT", 20)
        await card.submit(ctx, "MOVE", Opcode.GATHER, **listed)
        while not (state := await master.read_value(ctx, "MOVE_STATE")) & 0b1000:
            assert (await card.do(ctx, "LOOKUP", Opcode.NOP))["status"] == Status.OK
        assert state == Status.STALLED << 8 | 0b1001
        assert await master.read_value(ctx, "STATUS") == 1, "no port has stopped"
        await master.write(ctx, "CONTROL", 1)
        await card.ready(ctx)
        assert await master.read_value(ctx, "MOVE_STATE") == 0
        for queue in QUEUES:
            await card.enable(ctx, queue)
        gathered = await card.do(ctx, "MOVE", Opcode.GATHER, **listed)
        assert (gathered["status"], gathered["entries"]) == (Status.OK, 8)
    card = Card(dut=Top(CONFIG))  # with the stand-ins, which no other test gets
    card.run(scenario, limit=20000)
    card.memory.check()
