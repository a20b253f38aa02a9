"""A row mover with the memory model and lists from Python, and random commands."""

from dataclasses import dataclass, field, replace
from itertools import cycle

import numpy as np
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import GatherFlag, Opcode, Status, packed_address
from hotrow_rtl.interfaces.records import COMMAND_PARTS
from hotrow_rtl.mover.engine import RowMover
from hotrow_sim.golden.records import ROW_RECORD
from hotrow_sim.golden.region_check import Region, Table, unpack_address
from hotrow_sim.memory import Behaviour, MemoryModel
from hotrow_sim.model.device import MoveEngine

from ..axi_responders import read_responder, write_responder
from ..simulation import built
from .command_parts import register, submit
from .stream_bench import STEADY, StreamBench

# Without arithmetic the mover simulates several times as fast; see `bag_bench` for arithmetic.
TINY = replace(preset("tiny"), tables=16, handles=8, row_ports=1, arithmetic=0)
BASE = 0x7_0000_0000  # address of the memory
SIZE = 1 << 16
REGIONS = {  # aligned to 16 bytes, not to bus words
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
    4: Table(1, packed_address(0, 0), 1024, 1024),  # rows exceed the card's limit
    5: Table(1 << 31, packed_address(0, 0x20), 16, 65520, packed_address(0, 0), 4),
    6: Table(30, packed_address(2, 0x800), 64, 64, packed_address(6, 0), 4),  # no state region
    # The offset of row 3 is 0x20 modulo 2**48.
    7: Table(9, packed_address(0, (1 << 48) - 3 * 65520 + 0x20), 16, 65520),
    # Destinations of a SCATTER, after the slots.
    8: Table(40, packed_address(1, 0x3000), 64, 80, packed_address(2, 4), 4),
    9: Table(15, packed_address(1, 0x3D00), 256, 272, packed_address(2, 0x200), 32),
    10: Table(100, packed_address(1, 0x4E00), 16, 16, packed_address(2, 0x800), 8),
    11: Table(20, packed_address(1, 0x5460), 48, 64),
    12: Table(99, packed_address(1, 0x5A00), 64, 64),  # rows up to 23 are in the region
    13: Table(40, packed_address(1, 0x3000), 64, 80, packed_address(3, 0x10), 4),
}
DESTINATION, STATE = packed_address(1, 0x20), packed_address(2, 4)
STATE_SLOTS = packed_address(3, 0x24)
LISTED, WITH_STATE = GatherFlag.LISTED, GatherFlag.STATE
SOURCE_LIST, TARGET_LIST, LENGTH_LIST, WEIGHT_LIST = 0x1000, 0x2000, 0x3000, 0x4000  # addresses
LIST_OPERANDS = {"source": "rows", "targets": "targets", "lengths": "lengths",
                 "weights": "weights"}
LISTS = tuple(LIST_OPERANDS.values())
CALM = Behaviour()
ROUGH = dict(stall_address=0.3, stall_data=0.3, stall_response=0.3, jitter=30, latency=5,
             out_of_order=True, interleave=True)


class Image:
    """Memory of the golden model: `octets`, and the lists of a command."""

    def __init__(self, octets, command, config):
        self.octets, self.command, self.config = octets, command, config
        self.lists = {address: LIST_OPERANDS[operand]
                      for operand, address in command.payload().items()
                      if operand in LIST_OPERANDS}

    def read_list(self, address, dtype, count):
        name = self.lists[address]
        elements, _ = self.command.list(name)
        return elements[:count], word_faults(self.command, name, self.config)[:count]

    def view(self, address, size, write=False):
        return self.octets[address - BASE:address - BASE + size]

    def write(self, address, octets):
        self.view(address, octets.size)[:] = octets
        return 0


class MoveCommand:
    """Base of the commands."""

    def expect(self, image, config):
        """Outcome of the golden model, which changes `image`."""
        payload = self.payload()
        return MoveEngine(config, Image(image, self, config), REGIONS, TABLES).execute(
            payload, payload)


@dataclass
class Gather(MoveCommand):
    """A GATHER with random lists."""

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

    def list(self, name):
        """A list and the faults of its elements by position."""
        return {"rows": (self.entries, self.entry_faults),
                "targets": (self.targets, self.slot_faults)}[name]

    def payload(self):
        return {"opcode": Opcode.GATHER, "flags": int(self.flags), "source": SOURCE_LIST,
                "targets": TARGET_LIST, "destination": self.destination,
                "state_destination": self.state_destination, "count": self.count,
                "stride": self.stride}


def word_faults(command, name, config):
    """Fault of each element of a list: the fault of its bus word."""
    elements, by_position = command.list(name)
    word = np.arange(len(elements)) * elements.itemsize // config.bus_bytes
    faults = np.zeros(len(elements), int)
    for position, fault in by_position.items():
        faults[word == word[position]] = fault
    return faults


@dataclass
class Scatter(Gather):
    """A SCATTER, which reads the slots at `destination` and `state_destination`."""

    state_destination: int = STATE_SLOTS

    def payload(self):
        gather = super().payload()
        return gather | {"opcode": Opcode.SCATTER, "rows": gather.pop("destination"),
                         "state_rows": gather.pop("state_destination")}


@dataclass
class Span(MoveCommand):
    """A COPY of `count` bytes, or a FILL with a `pattern`."""

    count: int
    source: int = packed_address(0, 0)
    destination: int = DESTINATION
    pattern: int | None = None
    seed: int = 0

    def payload(self):
        fills = self.pattern is not None
        return {"opcode": Opcode.FILL if fills else Opcode.COPY, "count": self.count,
                "source": packed_address(7, 1) if fills else self.source,
                "destination": self.destination, "value": self.pattern or 0}


class RowBench:
    """A row mover with the memory model and lists from Python.

    Every row port has its own memory ports, in `reads` and `writes`, with equal behaviour except
    for the seeds; `read` and `write` are the first.
    """

    make = RowMover

    def __init__(self, config, read=CALM, write=CALM, timeout=0, seed=0, gaps=STEADY,
                 dram=None):
        self.config, self.gaps = config, gaps
        self.dut = built(self.make, config)
        self.bench = StreamBench(self.dut)
        self.image = np.random.default_rng(seed).integers(0, 256, SIZE, np.uint8)
        self.model = MemoryModel(dram)
        self.model.map(self.image, BASE)
        self.reads, self.writes = [], []
        for number in range(config.row_ports):
            for ports, make, behaviour, respond, buses in (
                    (self.reads, self.model.read_port, read, read_responder, self.dut.read_buses),
                    (self.writes, self.model.write_port, write, write_responder,
                     self.dut.write_buses)):
                behaviour = replace(behaviour, seed=behaviour.seed + number)
                ports.append(make(config.bus_bytes, behaviour))
                self.bench.background(respond(buses[number], ports[-1]))
        self.read, self.write = self.reads[0], self.writes[0]
        for name in LISTS:
            if hasattr(self.dut, name):
                self.bench.background(self._lists(getattr(self.dut, name), name))
        self.timeout, self.current = timeout, None

    async def register(self, ctx):
        """Write tables and regions, after the mover has cleared its memories: `outstanding` cycles
        after `ready`, so that the cycle counts of copies exclude the clearing of the ids."""
        ctx.set(self.dut.timeout, self.timeout)
        await ctx.tick().until(self.dut.ready)
        await ctx.tick().repeat(self.config.outstanding)

        def address(packed):
            return dict(zip(("handle", "offset"), unpack_address(packed), strict=True))

        await register(ctx, self.dut.region_update, {handle: {
            "valid": 1, "writable": region.writable, "base16": region.base >> 4,
            "size": region.size} for handle, region in REGIONS.items()})
        await register(ctx, self.dut.table_update, {number: {
            "valid": 1, "last_row": table.last_row, "weights": address(table.weights),
            "row16": table.row_bytes >> 4, "stride16": table.stride >> 4,
            "state": address(table.state), "state4": table.state_bytes >> 2,
            **({"type": table.type} if self.config.arithmetic else {})}
            for number, table in TABLES.items()})

    async def submit(self, ctx, command):
        self.current = command
        await submit(ctx, self.dut.engine.command, command.payload())

    async def outcome(self, ctx):
        port = self.dut.engine.outcome
        ctx.set(port.ready, 1)
        payload, = await ctx.tick().sample(port.payload).until(port.valid)
        ctx.set(port.ready, 0)
        return payload

    def run(self, commands, limit=20000):
        """Run commands one by one; return their outcomes, and the cycles from the transfer of the
        first one."""
        outcomes = []

        async def drive(ctx):
            await self.register(ctx)
            self.started = self.bench.cycles + COMMAND_PARTS
            for command in commands:
                await self.submit(ctx, command)
                outcomes.append(await self.outcome(ctx))
                assert ctx.get(self.dut.idle), "an outcome preceded the responses of its writes"
        self.bench.process("commands", drive)
        cycles = self.bench.run(limit) - self.started
        self.model.check()
        return outcomes, cycles

    def _lists(self, fetch, name):
        """A list port: serves the list of the current command, and drops it at a restart."""
        bus_bytes = self.config.bus_bytes

        def words(size):
            elements, by_position = self.current.list(name)
            octets = elements.tobytes()
            assert size == len(octets), f"{name}: expected {len(octets)} bytes, not {size}"
            faults = {position * elements.itemsize // bus_bytes: fault
                      for position, fault in by_position.items()}
            return [{"data": int.from_bytes(octets[at:at + bus_bytes], "little"),
                     "fault": faults.get(at // bus_bytes, 0), "last": at + bus_bytes >= size}
                    for at in range(0, size, bus_bytes)]

        async def serve(ctx):
            gaps, remaining, gap = cycle(self.gaps), [], 0
            while True:
                ctx.set(fetch.request.ready, not remaining)
                ctx.set(fetch.words.valid, bool(remaining) and not gap)
                if remaining:
                    ctx.set(fetch.words.payload, remaining[0])
                _, _, restart, requested, size, accepted = await ctx.tick().sample(
                    self.dut.restart, fetch.request.valid & fetch.request.ready,
                    fetch.request.p.bytes, fetch.words.valid & fetch.words.ready)
                gap = next(gaps) if accepted else max(0, gap - 1)
                if requested:
                    remaining = words(size)
                if accepted:
                    remaining = remaining[1:]
                if restart:
                    remaining = []
        return serve


def compare(bench, commands, **limits):
    """Run commands and compare outcomes and memory with the golden model; return the expected
    outcomes, and the cycles."""
    expected_image = bench.image.copy()
    outcomes, cycles = bench.run(commands, **limits)
    expected = [command.expect(expected_image, bench.config) for command in commands]
    for number, (got, want) in enumerate(zip(outcomes, expected, strict=True)):
        assert (Status(got.status), got.error_index, got.error_address, got.entries,
                got.bytes) == (want.status, want.error_index, want.error_address, want.entries,
                               want.bytes), f"command {number}, seed {commands[number].seed}"
        assert not any((got.lookups, got.hits, got.misses, got.unique, got.popular, got.refused))
    differ = np.flatnonzero(bench.image != expected_image)
    assert not len(differ), f"memory differs from {differ[0]:#x} on, seed {commands[0].seed}"
    return expected, cycles
