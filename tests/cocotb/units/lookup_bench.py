"""The lookup engine by itself beside its model: the same commands, then equal memories."""

import os

import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from hotrow_rtl.contract.encoding import OPERANDS, BatchFlag, Opcode
from hotrow_rtl.lookup.dispatch.result_addresses import LISTS_OF
from hotrow_sim.bench.unit_bench import UnitBench
from hotrow_sim.golden.outcome import FAULT_SLVERR
from hotrow_sim.golden.region_check import Table
from hotrow_sim.model.lookup_engine import LookupEngine
from hotrow_sim.model.memory import Memory

SEED, ROUNDS = int(os.environ.get("SEED", 1)), int(os.environ.get("ROUNDS", 2))
BASE, SIZE = 0x1_0000_0000, 1 << 16
LAST_ROWS = (400, 99, 300, 50)
COUNTS = ("status", "error_index", "error_address", "lookups", "hits", "misses", "unique",
          "popular", "entries", "refused")
PLANNED = ("evictions", "bypasses", "wait_for")
ENTRY = {"slots": 4, "popular": 4, "nonpopular": 4, "misses": 8, "fill_slots": 4,
         "victim_slots": 4, "fills": 8, "victims": 8, "destination": 16}  # bytes


class OneFault(Memory):
    """The model's memory, whose one error is SLVERR, as that of cocotbext-axi."""

    def read(self, address, size):
        octets, faults = super().read(address, size)
        return octets, np.minimum(faults, FAULT_SLVERR)

    def write(self, address, octets):
        return min(super().write(address, octets), FAULT_SLVERR)


class Bench:
    """The unit and its model with a memory each."""

    def __init__(self, units, seed):
        self.units, self.config, self.rng = units, units.config, np.random.default_rng(seed)
        c = self.config
        self.images = [self.rng.integers(0, 256, SIZE, np.uint8)]
        self.images.append(self.images[0].copy())
        units.memory.map(self.images[0], BASE)
        memory = OneFault(c.address_width, c.bus_bytes)
        memory.map(BASE, self.images[1], True)
        largest = c.directory_partitions.bit_length() - 1
        self.tables = {number: Table(last, 0, 64, 64, parts_log2=min(number, largest))
                       for number, last in enumerate(LAST_ROWS[:c.tables])}
        self.model, self.free, self.expected = LookupEngine(c, memory, self.tables), 0, []

    @classmethod
    async def start(cls, dut, seed=SEED, **pace):
        bench = cls(await UnitBench.start(dut, seed=seed, **pace), seed)
        bench.units.tables.put(*(
            {"number": number, "last_row": table.last_row, "parts_log2": table.parts_log2,
             "part": table.part} for number, table in bench.tables.items()))
        await bench.units.tables.drained()
        return bench

    def room(self, size):
        """An address for so many bytes; the memory is used again from its start."""
        size = -(-size // 64) * 64
        if self.free + size > SIZE:
            self.free = 0
        self.free += size
        return BASE + self.free - size

    def place(self, array):
        """The address of a copy of an array in both memories."""
        octets = np.ascontiguousarray(array).view(np.uint8).ravel()
        address = self.room(octets.size)
        for image in self.images:
            image[address - BASE:address - BASE + octets.size] = octets
        return address

    def command(self, opcode, **operands):
        """Send a command, which the model executes in `check`."""
        count = max(1, operands.get("count", 0))
        if opcode is Opcode.HARVEST:
            count = min(count, self.config.counter_entries)
        room = {name: self.room(ENTRY[name] * count) for name in LISTS_OF.get(opcode, ()) if name}
        given = {"opcode": int(opcode), **room, **operands}
        self.units.commands.put(given)
        self.expected.append(given)

    def batch(self, opcode, ids=None, samples=8, tables=3, layout=0, flags=0, **operands):
        """A batch of random ids, some beyond their table, in a layout; see `BatchFlag`."""
        lengths = None
        count = samples * tables
        if layout & BatchFlag.JAGGED:
            lengths = self.rng.integers(0, 4, count)
            lengths[self.rng.integers(count)] += 1
            count = int(lengths.sum())
            operands.setdefault("lengths", self.place(lengths.astype(np.uint16)))
        if ids is None:
            ids = (120 * self.rng.random(count) ** 3).astype(np.int64)
            ids[self.rng.random(count) < 0.03] = LAST_ROWS[1] + 1
        kind = np.uint64 if layout & BatchFlag.ID64 else np.uint32
        operands.setdefault("source", self.place(np.asarray(ids).astype(kind)))
        self.command(opcode, samples=samples, first_table=0, table_count=tables,
                     flags=int(layout | flags), **{"count": len(ids), **operands})

    def rows(self, opcode, rows, flags=0):
        """INSTALL or REMOVE (row, table) pairs."""
        self.command(opcode, source=self.place(np.asarray(rows, np.uint32)), count=len(rows),
                     flags=int(flags))

    def random_rows(self, count):
        return np.stack([self.rng.integers(0, 60, count), self.rng.integers(0, 3, count)], axis=1)

    async def check(self):
        """Every outcome is the expected one, and the memories are equal."""
        for number, given in enumerate(self.expected):
            full = {**dict.fromkeys(OPERANDS, 0), **given}
            want = self.model.execute(full, full)
            got = await with_timeout(self.units.outcomes.get(), 60, "us")
            planned = PLANNED if given["opcode"] == Opcode.PLAN else ()
            for name in (*COUNTS, *planned):
                assert getattr(got, name) == int(getattr(want, name)), (
                    f"seed {SEED}, command {number}, {name}: {getattr(got, name)}, expected "
                    f"{getattr(want, name)}: {given}")
        self.expected.clear()
        differ = np.flatnonzero(self.images[0] != self.images[1])
        assert not len(differ), f"seed {SEED}: memory differs from {BASE + differ[0]:#x} on"

    async def restart(self, cycles, *following):
        """Restart within the commands that were sent. Their results may or may not be there.
        `following` send commands while the ports may drain."""
        await ClockCycles(self.units.dut.clk, cycles)
        await self.units.restart(wait=False)
        self.expected.clear()
        for send in following:
            send()
        await self.units.ready()
        self.images[1][:] = self.images[0]

    def finish(self):
        strays = self.units.memory.strays
        self.units.finish()
        return len(strays)


async def silence_ends(bench, port, command):
    """A memory that does not answer: the command ends with TIMEOUT, and after a restart, once the
    memory answers again, the unit works."""
    dut = bench.units.dut
    dut.timeout.value = 200
    port.silence()
    command()
    outcome = await with_timeout(bench.units.outcomes.get(), 60, "us")
    assert int(dut.stopped.value)
    bench.expected.clear()
    port.silence(False)
    for _ in range(100):
        await RisingEdge(dut.clk)
    await bench.restart(0)
    assert not int(dut.stopped.value)
    return outcome.status
