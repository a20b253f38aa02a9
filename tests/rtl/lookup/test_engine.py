import dataclasses
from functools import partial

import numpy as np
import pytest
from amaranth import Cat
from amaranth.sim import Simulator
from hotrow_rtl.config import MISS_WAYS, preset
from hotrow_rtl.contract.encoding import (
    HARVEST_ENTRY_BYTES,
    NO_SLOT,
    ROW_ENTRY_BYTES,
    AllFlag,
    BatchFlag,
    Opcode,
    Status,
)
from hotrow_rtl.interfaces.records import COMMAND_PARTS, FAULT_DECERR, FAULT_SLVERR, FAULT_TIMEOUT
from hotrow_rtl.lookup.directory import slot_table
from hotrow_rtl.lookup.dispatch.result_addresses import LISTS_OF, RESULT_WRITERS, STRIPED_LIST
from hotrow_rtl.lookup.engine import LookupEngine
from hotrow_sim.golden.lookup.counters import Counters
from hotrow_sim.golden.lookup.directory import Directory
from hotrow_sim.golden.lookup.reader import beats_of, read_batch
from hotrow_sim.golden.lookup.splitter import split
from hotrow_sim.model.command_cycles import batch_command_cycles, list_command_cycles

from tests.support.benches.command_parts import submit
from tests.support.benches.list_bench import ListMemory
from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = dataclasses.replace(preset("tiny"), planner=False, tables=8, counter_sets=64,
                           miss_entries=32, directory_sets=64, batch_samples=128)
ONE_CHOICE = dataclasses.replace(
    TINY, name="one-choice", lane_banks=1, directory_choices=1, directory_sets=32, directory_ways=2,
    directory_partitions=1, bus_bytes=32, miss_entries=64)
WIDE = dataclasses.replace(TINY, name="wide-bus", bus_bytes=64, burst_beats=8, directory_sets=256,
                           miss_entries=128)
NARROW = dataclasses.replace(TINY, name="narrow-bus", bus_bytes=8, lane_banks=1, burst_beats=8,
                             arithmetic=0, row_ports=1)
SMALL = dataclasses.replace(NARROW, name="small", counter_sets=16, counter_ways=2,
                            directory_sets=32, window_beats=2)
ONE_LANE = dataclasses.replace(NARROW, name="one-lane", lookup_lanes=1)
TABLES = 5  # registered; the others are not
LAST_ROW = 99
COUNTS = ("lookups", "hits", "misses", "unique", "popular", "entries", "refused")


class Script:
    """Commands for the engines, with what the golden models say of each."""

    def __init__(self, config, gaps=STEADY, pauses=STEADY):
        self.config, self.gaps, self.pauses = config, gaps, pauses
        self.dut = built(LookupEngine, config)
        self.bench = StreamBench(self.dut)
        self.memory = ListMemory(self.bench, config, gaps=gaps, pauses=pauses)
        self.block = config.burst_beats * config.bus_bytes  # bytes
        self.counters, self.directory = Counters(config), Directory(config)
        self.commands, self.wanted, self.results, self.deposits = [], [], [], []
        self.scenario, self.scenarios = "", []  # the current one; that of each command

    def partition(self, table):
        largest = self.config.directory_partitions.bit_length() - 1
        return min(table, largest), 0

    def expect(self, command, status=Status.OK, error_index=0, error_address=0, **counts):
        self.commands.append(command)
        self.scenarios.append(self.scenario)
        self.wanted.append({"status": status, "error_index": error_index,
                            "error_address": error_address, **dict.fromkeys(COUNTS, 0), **counts})

    def result(self, command, operand, array, element_bytes):
        """Make room for a result that must equal `array`; its address goes into the command."""
        address = command[operand] = self.memory.room(
            max(1, len(array)) * element_bytes + self.block)
        self.results.append((len(self.commands), operand, address, np.asarray(array, np.uint32)))
        self.deposits.append(address)
        if operand == "misses" and self.config.striped_misses:
            self.deposits.append(self.second_block(address))

    def second_block(self, address):
        """Where the other deposit of the misses starts."""
        return (address // self.block + 1) * self.block

    def batch(self, opcode, ids, samples, tables, flags=0, lengths=None, faults=None, first=0):
        """Lay out a batch: (command, lookups, status of each)."""
        ids = np.asarray(ids, np.uint64)
        width = 8 if flags & BatchFlag.ID64 else 4
        command = {
            "opcode": opcode, "flags": flags, "count": len(ids), "samples": samples,
            "first_table": first, "table_count": tables,
            "source": self.memory.place(ids.astype(np.uint64 if width == 8 else np.uint32)),
        }
        if flags & BatchFlag.JAGGED:
            command["lengths"] = self.memory.place(np.asarray(lengths, np.uint16))
        lookups = read_batch(ids, samples, first, tables, flags, lengths)
        self.beat = beats_of(self.config.lanes, len(ids), flags)
        status = np.where(ids > LAST_ROW, int(Status.ROW_OUT_OF_RANGE), 0)
        per_word = self.config.bus_bytes // width
        for word, fault in (faults or {}).items():
            self.memory.read_faults[command["source"] + word * self.config.bus_bytes] = fault
            status[word * per_word:(word + 1) * per_word] = Status.SLVERR - 1 + fault
        return command, lookups, status

    @staticmethod
    def refusal(status):
        first = np.flatnonzero(status)[:1]
        return {"status": status[first[0]], "error_index": first[0]} if len(first) else {}

    def observe(self, *batch, **options):
        command, lookups, status = self.batch(Opcode.OBSERVE, *batch, **options)
        good = status == 0
        hits = self.counters.observe(lookups.table[good], lookups.row[good], self.beat[good])
        served = np.count_nonzero(good)
        self.expect(command, **self.refusal(status), lookups=served, hits=hits,
                    misses=served - hits)

    def split(self, *batch, **options):
        command, lookups, status = self.batch(Opcode.SPLIT, *batch, **options)
        good = status == 0
        if command["flags"] & BatchFlag.COUNT:
            self.counters.observe(lookups.table[good], lookups.row[good], self.beat[good])
        partitions = np.array([self.partition(int(table)) for table in lookups.table])
        found = self.directory.lookup(lookups.table, lookups.row, *partitions.T)
        want = split(self.config, lookups, found, ~good, self.beat)
        misses = np.stack([want.miss_row, want.miss_table], axis=1)
        for operand, array, size in (
                ("slots", want.slots, 4), ("popular", want.popular, 4),
                ("nonpopular", want.nonpopular, 4), ("misses", misses, ROW_ENTRY_BYTES)):
            self.result(command, operand, array, size)
        hits = np.count_nonzero(good & (found != NO_SLOT))
        self.expect(command, **self.refusal(status), lookups=np.count_nonzero(good), hits=hits,
                    misses=np.count_nonzero(good) - hits, unique=len(misses),
                    popular=len(want.popular), refused=want.unkept)

    def refused_batch(self, opcode, lengths, samples, tables, count, fault=0):
        """A jagged batch that its lengths refuse: nothing may be written or counted."""
        command, _, _ = self.batch(opcode, np.zeros(sum(lengths)), samples, tables,
                                   flags=BatchFlag.JAGGED, lengths=lengths)
        command["count"] = count
        command |= {operand: self.memory.room(64) for operand in LISTS_OF[Opcode.SPLIT]}
        if fault:
            self.memory.read_faults[command["lengths"]] = fault
            self.expect(command, status=Status.SLVERR - 1 + fault)
        else:
            self.expect(command, status=Status.LOOKUPS, error_index=sum(lengths))

    def list(self, opcode, rows):
        """INSTALL or REMOVE `rows` (n, 2 array of row, table)."""
        command = {"opcode": opcode, "count": len(rows),
                   "source": self.memory.place(np.asarray(rows, np.uint32))}
        slots, status, counts = [], [], dict.fromkeys(("entries", "hits", "misses", "refused"), 0)
        for row, table in np.asarray(rows).tolist():
            status.append(Status.TABLE_UNKNOWN if table >= TABLES else
                          Status.ROW_OUT_OF_RANGE if row > LAST_ROW else Status.OK)
            slot, present = NO_SLOT, False
            if status[-1] == Status.OK and opcode == Opcode.INSTALL:
                slot, present = self.directory.install(table, row, self.partition(table))
                counts["refused"] += slot == NO_SLOT
            elif status[-1] == Status.OK:
                slot = self.directory.remove(table, row, self.partition(table))
                counts["misses"] += slot == NO_SLOT
            counts["entries"] += slot != NO_SLOT
            counts["hits"] += present
            slots.append(slot)
        self.result(command, "slots", slots, 4)
        self.expect(command, **self.refusal(np.array(status)), **counts)

    def harvest(self, wanted, threshold=1):
        table, row, count = self.counters.harvest(wanted, threshold)
        command = {"opcode": Opcode.HARVEST, "count": wanted, "threshold": threshold}
        self.result(command, "destination", np.stack([row, table, count, 0 * count], axis=1),
                    HARVEST_ENTRY_BYTES)
        self.expect(command, entries=len(row))

    def decay(self, shift=1):
        self.counters.decay(shift)
        self.expect({"opcode": Opcode.DECAY, "shift": shift})

    def clear_counters(self):
        self.counters.clear()
        self.expect({"opcode": Opcode.DECAY, "flags": AllFlag.ALL})

    def clear_directory(self):
        self.directory.clear()
        self.expect({"opcode": Opcode.REMOVE, "flags": AllFlag.ALL})

    def fail_write(self, operand, fault, second=False):
        """Let a result of the latest command end with a fault, or its `second` deposit, if any."""
        address = self.commands[-1][operand]
        second &= self.config.striped_misses
        self.memory.write_faults[self.second_block(address) if second else address] = fault
        return address

    async def register_tables(self, ctx):
        await ctx.tick().until(self.dut.ready)
        update = self.dut.table_update
        for table in range(TABLES):
            parts_log2, part = self.partition(table)
            ctx.set(update.enable, 1)
            ctx.set(update.index, table)
            ctx.set(update.entry, {"valid": 1, "last_row": LAST_ROW, "parts_log2": parts_log2,
                                   "part": part})
            await ctx.tick()
        ctx.set(update.enable, 0)

    def serve(self):
        for name in ("source", "lengths"):
            self.memory.serve(getattr(self.dut, name))
        for number, name in enumerate(RESULT_WRITERS):
            self.memory.accept(getattr(self.dut, name),
                               striped=self.config.striped_misses and number >= STRIPED_LIST)

    async def submit(self, ctx, command):
        await submit(ctx, self.dut.engine.command, command)

    def run(self, limit=60_000):
        """Run every command; compare outcomes, results and requests; return the cycles."""
        engine, begun = self.dut.engine, []

        async def drive(ctx):
            await self.register_tables(ctx)
            begun.append(self.bench.cycles)
            for command in self.commands:
                await self.submit(ctx, command)
        self.serve()
        outcomes = self.bench.sink(engine.outcome, len(self.commands), self.pauses, name="outcomes")
        self.bench.process("commands", drive)
        cycles = self.bench.run(limit) - begun[0]
        for number, (command, want, got) in enumerate(
                zip(self.commands, self.wanted, outcomes, strict=True)):
            got = {name: getattr(got, name) for name in want}
            assert got == {name: int(value) for name, value in want.items()}, (
                f"command {number}, {self.scenarios[number]}: {command}")
        for number, operand, address, array in self.results:
            got = self.memory.array(address, array.size)
            assert got.tolist() == array.ravel().tolist(), (
                f"{operand} of command {number}, {self.scenarios[number]}")
        assert sorted(self.memory.deposits) == sorted(self.deposits)
        assert not self.memory.open
        return cycles


@pytest.mark.slow
@pytest.mark.parametrize("config", [
    SMALL, *(pytest.param(each, marks=pytest.mark.long) for each in (ONE_LANE, TINY, ONE_CHOICE))],
    ids=lambda config: config.name)
def test_a_wrong_parity_ends_every_command_until_the_directory_is_cleared(config, monkeypatch):
    """The table writes each row with the wrong parity."""
    monkeypatch.setattr(slot_table, "with_parity", lambda way: Cat(
        way.as_value()[:-1], way.as_value()[:-1].xor() ^ way.valid))
    script = Script(dataclasses.replace(config, name=f"{config.name}-odd"))
    script.list(Opcode.INSTALL, [(5, 1)])
    script.harvest(2)
    for refused in (partial(script.list, Opcode.INSTALL, [(5, 1)]),
                    partial(script.observe, [7], 1, 1),
                    partial(script.split, [7, 5, 100], 1, 3),
                    partial(script.list, Opcode.REMOVE, [(6, 1), (LAST_ROW + 1, 0)]),
                    partial(script.harvest, 2), script.decay):
        refused()
        script.wanted[-1]["status"] = Status.PARITY
    script.clear_directory()
    script.observe([7], 1, 1)
    script.list(Opcode.INSTALL, [(5, 1)])
    script.run()


def random_rows(rng, count, tables=TABLES):
    return np.stack([rng.integers(0, LAST_ROW + 1, count), rng.integers(0, tables, count)], axis=1)


def skewed(rng, count):
    """Ids with a few hot ones."""
    return np.minimum(rng.zipf(1.3, count) - 1, LAST_ROW)


def count_in_the_same_pass(script, rng):
    """The harvest after a split includes its lookups; hits are those of the directory."""
    ids = skewed(rng, 80)
    script.split(ids, 20, 4, flags=BatchFlag.COUNT)
    script.harvest(50)
    script.list(Opcode.INSTALL, random_rows(rng, 20))
    script.split(ids, 20, 4, flags=BatchFlag.COUNT | BatchFlag.FEATURE_MAJOR)
    script.split(ids, 20, 4)
    script.observe(ids[:40], 10, 4)
    script.harvest(50)


def learn_install_and_split(script, rng):
    ids = skewed(rng, 16 * TABLES)
    script.observe(ids, 16, TABLES)
    table, row, _ = script.counters.harvest(12, 2)
    script.harvest(12, threshold=2)
    script.list(Opcode.INSTALL, np.stack([row, table], axis=1))
    script.split(ids, 16, TABLES)
    script.split(skewed(rng, 33), 11, 3, flags=BatchFlag.FEATURE_MAJOR | BatchFlag.ID64, first=2)
    lengths = rng.integers(0, 4, 9 * 4)
    script.split(skewed(rng, lengths.sum()), 9, 4, flags=BatchFlag.JAGGED, lengths=lengths)
    script.observe(skewed(rng, lengths.sum()), 9, 4, lengths=lengths,
                   flags=BatchFlag.JAGGED | BatchFlag.FEATURE_MAJOR)
    script.decay()
    script.harvest(40)
    script.list(Opcode.REMOVE, np.stack([row, table], axis=1)[::2])
    script.split(ids[:TABLES], 1, TABLES)
    script.clear_directory()
    script.split(ids[:8], 4, 2)


def refused_items_are_skipped_and_the_first_is_reported(script, rng):
    script.list(Opcode.INSTALL, np.array([[1, 1], [LAST_ROW + 1, 0], [2, TABLES], [3, 3]]))
    ids = rng.integers(0, 2 * LAST_ROW, 8 * 4)
    script.split(ids, 8, 4)
    script.observe(ids, 8, 4)
    script.split(ids[:16], 4, 4, faults={1: FAULT_DECERR})
    script.observe(rng.integers(0, LAST_ROW, 48), 12, 4, faults={2: FAULT_TIMEOUT})
    big = rng.integers(0, LAST_ROW, 12).astype(np.uint64)
    big[7] |= 1 << 40
    script.split(big, 4, 3, flags=BatchFlag.ID64)
    script.harvest(5)
    script.split(ids[:4] % LAST_ROW, 2, 2)


def refused_lengths_leave_no_list_open(script, rng):
    script.list(Opcode.INSTALL, np.array([[1, 1], [2, 0]]))
    script.refused_batch(Opcode.SPLIT, [2, 1, 3, 0], 2, 2, count=7)
    script.refused_batch(Opcode.OBSERVE, [2, 1, 3, 0], 2, 2, count=5)
    script.refused_batch(Opcode.SPLIT, [1, 1], 1, 2, count=2, fault=FAULT_SLVERR)
    script.split([2, 1, 2], 1, 2, flags=BatchFlag.JAGGED, lengths=[1, 2])
    script.harvest(3)


def faults_of_result_writes_are_reported_unless_another_is(script, rng):
    script.list(Opcode.INSTALL, np.array([[1, 1]]))
    script.wanted[-1] |= {"status": Status.DECERR,
                          "error_address": script.fail_write("slots", FAULT_DECERR)}
    script.split([1, 1, 7, 8], 2, 2)
    script.fail_write("misses", FAULT_SLVERR)
    script.wanted[-1] |= {"status": Status.TIMEOUT,
                          "error_address": script.fail_write("nonpopular", FAULT_TIMEOUT)}
    script.split([1, 2, 3, 4], 2, 2)
    script.wanted[-1] |= {"status": Status.SLVERR,
                          "error_address": script.fail_write("misses", FAULT_SLVERR)}
    words = 2 * script.block // ROW_ENTRY_BYTES  # enough misses for both of their writers
    script.split(np.arange(words) // 2, words // 2, 2)  # one row number in both tables
    script.wanted[-1] |= {"status": Status.DECERR, "error_address": script.fail_write(
        "misses", FAULT_DECERR, second=True)}
    script.split([1, LAST_ROW + 1], 1, 2)
    script.fail_write("popular", FAULT_SLVERR)
    script.observe([1, 1, 7, 8], 2, 2)
    script.harvest(4)
    script.wanted[-1] |= {"status": Status.SLVERR,
                          "error_address": script.fail_write("destination", FAULT_SLVERR)}
    script.list(Opcode.REMOVE, np.array([[1, 1]]))


def empty_harvest_writes_nothing(script, rng):
    script.harvest(8)
    script.observe([5], 1, 1)
    script.harvest(8, threshold=2)
    script.clear_counters()
    script.harvest(8, threshold=0)


SCENARIOS = (
    learn_install_and_split, count_in_the_same_pass, empty_harvest_writes_nothing,
    refused_items_are_skipped_and_the_first_is_reported, refused_lengths_leave_no_list_open,
    faults_of_result_writes_are_reported_unless_another_is)


@pytest.mark.parametrize("config, gaps, pauses", [
    pytest.param(SMALL, STEADY, STEADY, id="small", marks=pytest.mark.long),
    pytest.param(ONE_LANE, RAGGED, RAGGED, id="one-lane", marks=pytest.mark.long),
    pytest.param(TINY, RAGGED, RAGGED, id="tiny-ragged", marks=pytest.mark.long),
    pytest.param(ONE_CHOICE, STEADY, RAGGED, id="one-choice", marks=pytest.mark.long),
    pytest.param(NARROW, RAGGED, STEADY, id="narrow-bus", marks=pytest.mark.long)])
def test_scenarios(config, gaps, pauses, scenarios=SCENARIOS):
    """One after the other, on one engine; counters and directory are cleared in between."""
    script = Script(config, gaps, pauses)
    for seed, scenario in enumerate(scenarios):
        script.scenario = scenario.__name__
        scenario(script, np.random.default_rng(seed))
        script.clear_counters()
        script.clear_directory()
    script.run()


@pytest.mark.long
def test_half_of_the_scenarios_on_one_lane():
    test_scenarios(ONE_LANE, RAGGED, RAGGED, SCENARIOS[1::2])


@pytest.mark.slow
@pytest.mark.parametrize("config, latency", [
    pytest.param(TINY, 3, marks=pytest.mark.long),
    pytest.param(ONE_CHOICE, 20, marks=pytest.mark.long),
    pytest.param(WIDE, 3, marks=pytest.mark.long), (ONE_LANE, 3)],
    ids=lambda value: getattr(value, "name", value))
def test_cycles_agree_with_the_model(config, latency):
    script = Script(config)
    script.memory.latency = latency
    ids = np.random.default_rng(5).integers(0, 14, 100)
    script.list(Opcode.INSTALL, np.stack([np.arange(12), np.zeros(12)], axis=1))
    script.split(ids, 100, 1)
    # The second command comes while the first one runs.
    model = COMMAND_PARTS + list_command_cycles(
        config, np.ones(12, bool), latency) + batch_command_cycles(
        config, -(-100 // config.lanes), 100, 0, True, latency)
    assert 0 < script.wanted[1]["misses"] < 30
    assert script.run() == pytest.approx(model, rel=0.035)


@pytest.mark.slow
@pytest.mark.parametrize("name, size, words", [
    pytest.param("batch_samples", 4096, 4096 // SMALL.lanes // 2,  # words of even and odd numbers
                 marks=pytest.mark.long),                          # apart
    ("counter_sets", 1024, 1024 // SMALL.banks),
    pytest.param("directory_sets", 512, 512 // SMALL.banks, marks=pytest.mark.long),
    pytest.param("miss_entries", 512, 512 // SMALL.banks // MISS_WAYS, marks=pytest.mark.long),
    pytest.param("tables", 512, 512, marks=pytest.mark.long)])
def test_ready_once_every_memory_is_cleared(name, size, words):
    """Each memory in turn takes longest."""
    dut, cycles = LookupEngine(dataclasses.replace(SMALL, **{name: size})), 0

    async def wait(ctx):
        nonlocal cycles
        while not ctx.get(dut.ready):
            await ctx.tick()
            cycles += 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(wait)
    simulator.run()
    assert words <= cycles < words + 20
