"""The compiled lookup queue answers as the golden models do, to the bit."""

import platform
from dataclasses import replace

import numpy as np
import pytest
from hotrow.kernels.compiler import find_compiler
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import AllFlag, BatchFlag, Opcode, PlanFlag
from hotrow_sim.golden.records import COMMAND_RECORD, ROW_RECORD, encode
from hotrow_sim.golden.region_check import Table
from hotrow_sim.model.lookup_engine import LookupEngine
from hotrow_sim.model.memory import Memory

from tests.engine.lookup_card import LookupCard

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")

BASE, HOLE, PIECE = 1 << 16, 1 << 22, 1 << 21  # of the memory: pieces and gaps
PART = 1 << 13  # lookups that pay for a thread
RESULTS = {
    Opcode.HARVEST: {"destination": 16}, Opcode.INSTALL: {"slots": 4}, Opcode.REMOVE: {"slots": 4},
    Opcode.SPLIT: {"slots": 4, "popular": 4, "nonpopular": 4, "misses": 8},
    Opcode.PLAN: {"slots": 4, "fill_slots": 4, "victim_slots": 4, "fills": 8, "victims": 8}}
SMALL = {"batch_samples": 1 << 10, "counter_sets": 1 << 10, "miss_entries": 256}
GEOMETRIES = {
    "tiny": preset("tiny"),
    "tiny, wide sets": replace(preset("tiny"), directory_ways=8, counter_ways=3, window_beats=2),
    "tiny, no planner": replace(preset("tiny"), planner=False, directory_partitions=2),
    "ecp5": replace(preset("ecp5"), counter_sets=64, directory_sets=32, miss_entries=64),
    "u55c": replace(preset("alveo-u55c"), directory_sets=64, directory_partitions=2, **SMALL),
    "u55c, narrow tags": replace(preset("alveo-u55c"), tables=16, address_width=32, lane_banks=1,
                                 directory_sets=32, directory_partitions=1, **SMALL),
    "u55c, one choice": replace(preset("alveo-u55c"), directory_sets=64, directory_choices=1,
                                directory_partitions=2, stamp_bits=4, counter_bits=4, **SMALL),
    "u55c, 16 ways": replace(preset("alveo-u55c"), directory_sets=256, directory_ways=16,
                             stamp_bits=16, directory_partitions=1, counter_sets=1 << 14,
                             batch_samples=1 << 10),
}


class Pair:
    """A golden engine and a compiled one with the same memory.

    Parameters
    ----------
    config : Config
    seed : int
    threads : int
    longest : int
        Lookups of a batch.
    """

    def __init__(self, config, seed, threads=1, longest=300):
        self.config, self.longest = config, longest
        self.random = np.random.default_rng(seed)
        self.memory, self.tables = Memory(config.address_width, config.bus_bytes), {}
        self.golden = LookupEngine(config, self.memory, self.tables)
        self.card = LookupCard(config, threads)
        self.pieces = []
        for start, writable in ((BASE, True), (BASE + HOLE, True), (BASE + 2 * HOLE, False)):
            pair = np.zeros(PIECE, np.uint8), np.zeros(PIECE, np.uint8)
            self.memory.map(start, pair[0], writable)
            self.card.map(start, pair[1], writable)
            self.pieces.append((start, pair))
        partitions = self.random.integers(0, 2) * int(np.log2(config.directory_partitions))
        for number in range(min(config.tables, 12)):
            log2 = int(self.random.integers(0, partitions + 1))
            part = int(self.random.integers(0, 1 << log2))
            last_row = int(self.random.choice([0, 50, 400, 5000] if longest < PART else [1 << 16]))
            self.tables[number] = Table(last_row, 0, 16, 16, parts_log2=log2, part=part)
            self.card.table(number, last_row, log2, part)
        self.batch, self.retired, self.marked = 0, -1, -1

    def place(self, values):
        """Write an input list; its address. Now and then it crosses the end of its piece."""
        octets = np.ascontiguousarray(values).view(np.uint8).ravel()
        at, (start, pair) = 0, self.pieces[0]
        if self.random.random() < 0.05:
            at = PIECE - int(self.random.integers(0, len(octets) + 1)) // 64 * 64
        for array in pair:
            array[at:at + len(octets)] = octets[:PIECE - at]
        return start + at

    def run(self, opcode, source=None, lengths=None, **fields):
        """Execute one command on both engines and compare all that it does."""
        addresses, count = {}, fields.get("count", 0)
        if source is not None:
            addresses["source"] = self.place(source)
        if lengths is not None:
            addresses["lengths"] = BASE + HOLE + PIECE // 2
            if self.random.random() < 0.03:
                addresses["lengths"] = BASE + HOLE + PIECE - 64
            for array in self.pieces[1][1]:
                octets = lengths.view(np.uint8)
                at = addresses["lengths"] - BASE - HOLE
                array[at:at + len(octets)] = octets[:PIECE - at]
        at = BASE + HOLE
        for name, size in RESULTS.get(opcode, {}).items():
            addresses[name] = at
            if self.random.random() < 0.02:
                addresses[name] = BASE + 2 * HOLE + int(self.random.integers(-2, 1)) * 64
            at += -size * count % 64 + size * count + 64
        record = encode(COMMAND_RECORD, opcode=opcode, **fields)
        command = {name: int(record.view(COMMAND_RECORD)[0][name])
                   for name in COMMAND_RECORD.names}
        expected = vars(self.golden.execute(command, addresses))
        found = self.card.execute(record, addresses)
        found["status"] = int(found["status"])
        assert found == {name: int(value) for name, value in expected.items()}, command
        for start, (golden, compiled) in self.pieces:
            at = np.flatnonzero(golden != compiled)
            assert not len(at), (command, addresses, hex(start + int(at[0])))
        if self.config.planner:
            assert self.card.retired == self.golden.planning.retired
        return expected

    def batch_of(self, flags):
        """Fields of a random batch."""
        random = self.random
        count_tables = int(random.integers(1, 6))
        first_table = int(random.integers(0, len(self.tables) - count_tables + 1))
        samples = int(random.integers(1, self.longest // count_tables + 1))
        bags, lengths = samples * count_tables, None
        if flags & BatchFlag.JAGGED:
            lengths = random.integers(0, 4, bags).astype(np.uint16)
            count = max(1, int(lengths.sum()) + (random.random() < 0.03))
        else:
            count = bags
        rows = random.choice([3, 40, 400, 5000] if self.longest < PART else [400, 1 << 16])
        ids = np.minimum(random.zipf(1.3, count) - 1, rows) if random.random() < 0.5 else (
            random.integers(0, rows, count))
        if random.random() < 0.7:  # the others have ids that are out of range
            ids %= min(self.tables[first_table + t].last_row + 1 for t in range(count_tables))
        ids = ids.astype(np.uint64 if flags & BatchFlag.ID64 else np.uint32)
        if flags & BatchFlag.ID64 and random.random() < 0.1:
            ids[random.integers(0, count)] |= np.uint64(1 << 40)
        return dict(source=ids, lengths=lengths, count=count, samples=samples,
                    first_table=first_table, table_count=count_tables, flags=int(flags))

    def entries(self):
        """A random list of rows, some of them wrong."""
        count = int(self.random.integers(1, 120))
        rows = np.zeros(count, ROW_RECORD)
        rows["table"] = self.random.integers(0, len(self.tables) + 1, count)
        rows["row"] = self.random.integers(0, 60, count)
        return rows

    def step(self):
        """One random command."""
        random = self.random
        layout = int(random.integers(0, 8))
        kinds = ["observe", "install", "remove", "split", "harvest", "decay"]
        kind = random.choice(kinds + ["plan"] * 12 + ["mark"] * 6 if self.config.planner else kinds)
        if kind == "observe":
            self.run(Opcode.OBSERVE, **self.batch_of(layout))
        elif kind == "split":
            self.run(Opcode.SPLIT, **self.batch_of(layout | 8 * int(random.integers(0, 2))))
        elif kind in ("install", "remove"):
            rows = self.entries()
            policy = int(random.integers(0, 4)) << 6 if kind == "install" else 0
            if kind == "remove" and random.random() < 0.1:
                self.run(Opcode.REMOVE, flags=AllFlag.ALL)
                self.batch = 0
                return
            self.run(Opcode.INSTALL if kind == "install" else Opcode.REMOVE, source=rows,
                     count=len(rows), flags=policy)
        elif kind == "harvest":
            self.run(Opcode.HARVEST, count=int(random.integers(1, 200)),
                     threshold=int(random.integers(0, 6)))
        elif kind == "decay":
            if random.random() < 0.3:
                self.run(Opcode.DECAY, flags=AllFlag.ALL)
            else:
                self.run(Opcode.DECAY, shift=int(random.choice([0, 1, 3, 31, 32, 40])))
        else:
            self.plan_or_mark(kind, layout)

    def plan_or_mark(self, kind, layout):
        random, state = self.random, self.golden.planning.planner.state
        value = state.planned + 1
        if random.random() < 0.5:
            batch = state.retired + int(random.integers(0, 3))
            assert self.card.retire(batch) == self.golden.planning.retire(batch & 0xFFFF_FFFF)
        if kind == "mark" or random.random() < 0.05:
            value += int(random.integers(0, 4))
        if kind == "mark":
            self.run(Opcode.MARK, value=value & 0xFFFF_FFFF, **self.batch_of(layout))
            return
        policy = int(random.integers(0, 4)) << 6
        more = random.choice([0, 0, PlanFlag.COUNT, PlanFlag.ADMIT])
        more |= random.choice([0, PlanFlag.READ_ONLY])
        self.run(Opcode.PLAN, value=value & 0xFFFF_FFFF,
                 **self.batch_of(layout | policy | int(more)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [
    0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_random_session(name, seed):
    pair = Pair(GEOMETRIES[name], seed)
    for _ in range(100):
        pair.step()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "threads"), [
    ("tiny", 2), ("ecp5", 3), ("u55c", 7), ("u55c, narrow tags", 2), ("u55c, one choice", 7)])
def test_threads_change_nothing(name, threads):
    pair = Pair(GEOMETRIES[name], threads, threads, longest=8 * PART)
    for _ in range(8):
        pair.step()


@pytest.mark.parametrize(("name", "threads"), [("tiny, wide sets", 2), ("u55c, narrow tags", 7)])
def test_threads_evict_in_order(name, threads):
    """A row that a batch evicts is missed by later lookups of that batch; rows of the batch before
    it are held, and become dirty."""
    pair = Pair(GEOMETRIES[name], threads, threads, longest=2 * PART)
    slots, count, evicted = pair.config.slots, 2 * PART, 0
    for number in range(16):
        planned = pair.golden.planning.planner.state.planned
        for batch in (planned - 1, planned) if number % 8 == 7 else (planned - 1,):
            assert pair.card.retire(batch) == pair.golden.planning.retire(batch & 0xFFFF_FFFF)
        rows = 3 * slots // 2 if number % 8 == 7 else slots // 2
        ids = pair.random.integers(0, rows, count) + number * (slots // 8)
        done = pair.run(Opcode.PLAN, source=ids.astype(np.uint32), count=count, samples=count,
                        first_table=0, table_count=1, value=planned + 1,
                        flags=int(PlanFlag.READ_ONLY) * (number % 3 == 0))
        evicted += done["evictions"]
    assert evicted and done["bypasses"]


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
def test_instruction_sets_change_nothing(monkeypatch):
    monkeypatch.setenv("CXX", f"{' '.join(find_compiler())} -march=x86-64-v2")
    pair = Pair(GEOMETRIES["u55c, narrow tags"], 0)
    for _ in range(100):
        pair.step()
