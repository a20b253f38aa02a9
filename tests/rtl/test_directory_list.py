import dataclasses

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.config import preset
from hotrow_rtl.contract import NO_SLOT, ROW_ENTRY_BYTES, AllFlag, Opcode, Status
from hotrow_rtl.directory import Directory
from hotrow_rtl.directory_list import DirectoryList
from hotrow_rtl.layouts import FAULT_DECERR, Fetch, command, outcome, result, table_update
from hotrow_sim.cycles.directory import clear_cycles, list_cycles
from hotrow_sim.golden import directory as golden
from hotrow_sim.listbench import ListMemory
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

TINY = preset("tiny")
LATENCY = 3  # of the list memory
CONFIGS = [
    TINY,
    dataclasses.replace(TINY, name="one-choice", directory_choices=1, directory_sets=16,
                        directory_ways=2, directory_partitions=1, bus_bytes=32),
    dataclasses.replace(TINY, name="wide-bus", bus_bytes=64),
]


def tables_of(config):
    """{table: (last_row, parts_log2, part)}; the upper half of the table numbers is free."""
    largest = config.directory_partitions.bit_length() - 1
    return {table: (table * 10 + 5, largest - table % (largest + 1), 0)
            for table in range(config.tables // 2)}


class ListedDirectory(wiring.Component):
    """The list unit with its directory."""

    def __init__(self, config):
        self.config = config
        super().__init__({
            "command": In(stream.Signature(command)),
            "table_update": In(table_update(config)),
            "source": Out(Fetch(config)),
            "slots": Out(stream.Signature(result(32))),
            "outcome": Out(stream.Signature(outcome)),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.entries = entries = DirectoryList(self.config)
        m.submodules.directory = directory = Directory(self.config)
        for name in ("command", "table_update", "source", "slots", "outcome"):
            connect(m, entries=getattr(entries, name), own=flipped(getattr(self, name)))
        connect(m, entries=entries.queries, directory=directory.queries)
        connect(m, directory=directory.answers, entries=entries.answers)
        m.d.comb += [
            directory.clear.eq(entries.clear),
            entries.cleared.eq(directory.ready),
            entries.restart.eq(self.restart),
            directory.restart.eq(self.restart),
        ]
        return m


@dataclasses.dataclass
class List:
    """A command with its entries (n, 2 array of row, table) and the faults of its bus words."""

    opcode: Opcode
    entries: np.ndarray
    flags: int = 0
    faults: dict = dataclasses.field(default_factory=dict)  # {word: fault}


def model(config, tables, lists):
    """What each list must answer: (slots, counts and refusal)."""
    directory = golden.Directory(config)
    per_word = config.bus_bytes // ROW_ENTRY_BYTES
    for one in lists:
        counts = dict.fromkeys(("status", "error_index", "entries", "hits", "misses", "refused"), 0)
        slots = []
        if one.flags:
            directory.clear()
            yield slots, counts
            continue
        for index, (row, table) in enumerate(one.entries.tolist()):
            fault = one.faults.get(index // per_word, 0)
            status = (Status.SLVERR - 1 + fault if fault else
                      Status.TABLE_UNKNOWN if table not in tables else
                      Status.ROW_OUT_OF_RANGE if row > tables[table][0] else Status.OK)
            slot = NO_SLOT
            if status:
                if not counts["status"]:
                    counts.update(status=status, error_index=index)
            elif one.opcode == Opcode.INSTALL:
                slot, present = directory.install(table, row, tables[table][1:])
                counts["hits"] += present
                counts["refused"] += slot == NO_SLOT
            else:
                slot = directory.remove(table, row, tables[table][1:])
                counts["misses"] += slot == NO_SLOT
            counts["entries"] += slot != NO_SLOT
            slots.append(slot)
        yield slots, counts


def run(config, lists, gaps=STEADY, pauses=STEADY):
    """Serve the lists; check slots and outcomes against the model; return their cycles."""
    dut, tables, begun = ListedDirectory(config), tables_of(config), []
    bench = StreamBench(dut)
    memory = ListMemory(bench, config, gaps=gaps, latency=LATENCY)
    commands = []
    for one in lists:
        address = memory.place(one.entries.astype(np.uint32))
        memory.read_faults.update(
            {address + word * config.bus_bytes: fault for word, fault in one.faults.items()})
        commands.append({"opcode": one.opcode, "flags": one.flags, "source": address,
                         "count": len(one.entries)})
    memory.serve(dut.source)
    wanted = list(model(config, tables, lists))

    async def drive(ctx):
        for _ in range(config.tables):
            await ctx.tick()  # the descriptors are cleared after reset
        for table, (last_row, parts_log2, part) in tables.items():
            ctx.set(dut.table_update.enable, 1)
            ctx.set(dut.table_update.index, table)
            ctx.set(dut.table_update.entry, {
                "valid": 1, "last_row": last_row, "parts_log2": parts_log2, "part": part})
            await ctx.tick()
        ctx.set(dut.table_update.enable, 0)
        begun.append(bench.cycles)
        for one in commands:
            ctx.set(dut.command.p, one)
            ctx.set(dut.command.valid, 1)
            await ctx.tick().until(dut.command.ready)
            ctx.set(dut.command.valid, 0)
    bench.process("commands", drive)
    slots = bench.sink(dut.slots, sum(len(want) for want, _ in wanted), pauses, name="slots",
                       read=lambda p: (p.value, p.present, p.last))
    outcomes = bench.sink(dut.outcome, len(lists), pauses, name="outcomes")
    cycles = bench.run(200 + 20 * sum(len(one.entries) for one in lists) + 100 * len(lists))
    end = 0
    for number, (one, (want, counts), got) in enumerate(zip(lists, wanted, outcomes)):
        here = slots[end:end + len(want)]
        end += len(want)
        assert [value for value, *_ in here] == want, f"list {number}, {one.opcode!r}"
        assert [last for *_, last in here] == [0] * (len(want) - 1) + [1] * bool(want)
        assert {name: getattr(got, name) for name in counts} == counts, f"list {number}"
        assert got.error_address == got.lookups == got.bytes == 0
    return cycles - begun[0]


def rows(config, count, seed, wrong=0.0):
    """Rows of known tables; a share of `wrong` ones, half beyond the table, half without one."""
    rng = np.random.default_rng(seed)
    table = rng.integers(0, config.tables // 2, count)
    row = rng.integers(0, table * 10 + 6)
    kind = rng.random(count)
    row[kind < wrong / 2] += 1 << 20
    table[kind > 1 - wrong / 2] += rng.choice([config.tables // 2, config.tables, 1 << 16])
    return np.stack([row, table], axis=1)


@pytest.mark.parametrize("config, gaps, pauses", [
    (TINY, STEADY, STEADY), (TINY, RAGGED, STEADY), (TINY, STEADY, RAGGED),
    *((config, RAGGED, RAGGED) for config in CONFIGS)],
    ids=["steady", "gaps", "back-pressure", *(f"both-{config.name}" for config in CONFIGS)])
def test_lists_equal_golden(config, gaps, pauses):
    first = rows(config, 80, seed=1, wrong=0.1)
    run(config, [
        List(Opcode.INSTALL, first),
        List(Opcode.REMOVE, first[::3]),
        List(Opcode.INSTALL, rows(config, 30, seed=2)),
        List(Opcode.REMOVE, first[:0], flags=AllFlag.ALL),
        List(Opcode.REMOVE, first[:5]),
        List(Opcode.INSTALL, first[:40]),
    ], gaps, pauses)


def test_overflow_is_refused_and_removal_makes_room():
    config = CONFIGS[1]
    many = np.stack([np.arange(100), np.full(100, 15)], axis=1)
    wanted = list(model(config, tables_of(config), [List(Opcode.INSTALL, many)]))
    assert wanted[0][1]["refused"] > 20
    run(config, [List(Opcode.INSTALL, many), List(Opcode.REMOVE, many[::2]),
                 List(Opcode.INSTALL, many[::-1])])


def test_duplicates_in_one_list():
    twice = np.array([[5, 1], [5, 1], [6, 1], [5, 1], [6, 1]])
    run(TINY, [List(Opcode.INSTALL, twice), List(Opcode.REMOVE, twice)])


@pytest.mark.parametrize("first", [0, 2])
def test_faulted_words_are_refused_with_their_entries(first):
    few = rows(TINY, 9, seed=3)
    run(TINY, [List(Opcode.INSTALL, few, faults={first: FAULT_DECERR, 4: FAULT_DECERR}),
               List(Opcode.REMOVE, few)])


def test_one_entry():
    run(TINY, [List(Opcode.REMOVE, np.array([[1, 1]])), List(Opcode.INSTALL, np.array([[1, 1]])),
               List(Opcode.INSTALL, np.array([[1, 1 << 31]]))])


@pytest.mark.parametrize("wrong", [0, 0.1, 0.5, 2])
def test_cycles_agree_with_the_model(wrong):
    few = rows(TINY, 100, seed=4, wrong=wrong)
    valid = (few[:, 0] <= 1 << 19) & (few[:, 1] < TINY.tables // 2)
    assert (np.count_nonzero(valid) == 0) == (wrong == 2)
    cycles = run(TINY, [List(Opcode.INSTALL, few)])
    assert cycles == pytest.approx(list_cycles(valid, first_word=LATENCY + 1), rel=0.05)


def test_clear_takes_a_sweep():
    cycles = run(TINY, [List(Opcode.REMOVE, np.zeros((0, 2)), flags=AllFlag.ALL)])
    assert cycles == pytest.approx(clear_cycles(TINY), abs=3)
