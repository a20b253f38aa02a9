"""A directory list with a memory of lists and a ring of directory banks played here."""

import dataclasses
from collections import deque
from itertools import cycle

import numpy as np
from amaranth import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.config import ROW_NUMBER_WIDTH, log2, preset
from hotrow_rtl.contract.encoding import NO_SLOT, ROW_ENTRY_BYTES, Opcode, Status
from hotrow_rtl.interfaces.lookup_payloads import (
    DirectoryOp,
    bank_answer,
    beat_request,
    row_request,
    waiting_beat,
)
from hotrow_rtl.interfaces.records import ReadClient, command, outcome, result, table_update
from hotrow_rtl.lookup.banks.crossbar import BankCrossbar
from hotrow_rtl.lookup.banks.lookup_bank import LookupBank
from hotrow_rtl.lookup.directory.install_remove import InstallRemove
from hotrow_rtl.lookup.hashing.row_location import join_key
from hotrow_sim.golden.lookup import directory as golden

from tests.support.benches.list_bench import ListMemory
from tests.support.benches.stream_bench import STEADY, StreamBench
from tests.support.simulation import built

TINY = dataclasses.replace(preset("tiny"), planner=False, arithmetic=0, lane_banks=1,
                           bus_bytes=8, burst_beats=8, row_ports=1)
FOUR_LANES = dataclasses.replace(TINY, name="four-lanes", bus_bytes=16)
LATENCY = 3  # of the list memory
DELAY = 9  # of the ring played here: from a beat to its answer
WIDE = dataclasses.replace(TINY, name="bus-64", lane_banks=2, bus_bytes=64, counter_sets=256,
                           directory_sets=256, miss_entries=1024)
ONE_CHOICE = dataclasses.replace(TINY, name="one-choice", lane_banks=2, bus_bytes=32,
                                 directory_choices=1, directory_sets=32, directory_ways=2,
                                 directory_partitions=1)
CONFIGS = [TINY, ONE_CHOICE, WIDE]


def tables_of(config):
    """{table: (last_row, parts_log2, part)}; the upper half of the table numbers is free."""
    largest = log2(config.directory_partitions)
    return {table: (table * 10 + 5, parts := largest - table % (largest + 1), table % (1 << parts))
            for table in range(config.tables // 2)}


class Ring:
    """The ring of banks around a list unit, played: a golden directory answers each beat `DELAY`
    cycles later, with gaps between answers and pauses before it takes a beat.

    Attributes
    ----------
    taken, answered : list of int
        Cycles in which beats came and left.
    """

    def __init__(self, bench, dut, config, gaps=STEADY, pauses=STEADY):
        self.bench, self.dut, self.config = bench, dut, config
        self.directory = golden.Directory(config)
        self.gaps, self.pauses = cycle(gaps), cycle(pauses)
        self.taken, self.answered = [], []
        bench.background(self.serve)

    async def serve(self, ctx):
        dut, flying, sweep, held = self.dut, deque(), 0, None
        gap, pause = next(self.gaps), next(self.pauses)
        while True:
            offers = bool(flying) and flying[0][0] <= self.bench.cycles and not gap
            ctx.set(dut.cleared, not sweep)
            ctx.set(dut.beats.ready, not pause)
            ctx.set(dut.answered.valid, offers)
            if offers:
                ctx.set(dut.answered.p, flying[0][1])
            now = self.bench.cycles
            _, _, valid, beat, ready, restart, clear = await ctx.tick().sample(
                dut.beats.valid, dut.beats.p, dut.answered.ready, dut.restart, dut.clear)
            gap, sweep = max(0, gap - bool(flying)), max(0, sweep - 1)
            if restart:
                flying.clear()
                held = None
                continue
            assert held is None or (valid and beat.as_bits() == held), "a beat changed"
            held = beat.as_bits() if valid and pause else None
            if clear:
                assert not flying
                self.directory.clear()
                sweep = self.config.directory_sets // self.config.banks
            if offers and ready:
                flying.popleft()
                self.answered.append(now)
                gap = next(self.gaps)
            if valid and not pause:
                self.taken.append(now)
                flying.append((now + DELAY, self.answer(beat)))
                pause = next(self.pauses)
            elif valid:
                pause -= 1

    def answer(self, beat):
        """Edit the golden directory; what is not an answer must not matter."""
        c, lane, kept = self.config, beat.lanes[0], beat.carried.lanes[0]
        assert kept.present and not any(other.present for other in beat.carried.lanes[1:])
        assert not any(other.valid for other in beat.lanes[1:])
        assert not beat.carried.counts and not beat.carried.splits
        assert lane.valid == (kept.status == Status.OK)
        found = {"hit": 1, "placed": 1, "slot": {"way": 1, "set": 1}}
        if lane.valid:
            request, key = lane.request, join_key(c, lane.bank, lane.request.bank_key)
            shared = beat.shared
            assert not shared.miss and not request.amount
            row = key >> ROW_NUMBER_WIDTH, key & 0xFFFFFFFF, (request.parts_log2, request.part)
            if shared.op == DirectoryOp.INSTALL:
                slot, hit = self.directory.install(*row)
            else:
                assert shared.op == DirectoryOp.REMOVE
                slot = self.directory.remove(*row)
                hit = slot != NO_SLOT
            found["hit"], found["placed"] = hit, slot != NO_SLOT
            if slot != NO_SLOT:
                set_, way = divmod(slot, c.directory_ways)
                choice, set_ = divmod(set_, c.directory_sets)
                assert set_ % c.banks == lane.bank
                found["slot"] = {"way": way, "set": set_ // c.banks, "choice": choice}
        others = [{"found": {"hit": 1, "placed": 1}, "counted": 1}] * (c.lanes - 1)
        return {"carried": beat.carried, "banks": [lane.bank] + [1] * (c.lanes - 1),
                "answers": [{"found": found, "counted": 1}, *others]}


class ListedDirectory(wiring.Component):
    """The list unit with the real ring and its banks of the directory."""

    def __init__(self, config):
        self.config = config
        super().__init__({
            "command": In(stream.Signature(command)),
            "table_update": In(table_update(config)),
            "source": Out(ReadClient(config)),
            "slots": Out(stream.Signature(result(32))),
            "outcome": Out(stream.Signature(outcome)),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        m.submodules.entries = entries = InstallRemove(c)
        m.submodules.ring = ring = BankCrossbar(
            c, waiting_beat(c), row_request(c), beat_request(c), bank_answer(c))
        for name in ("command", "table_update", "source", "slots", "outcome"):
            connect(m, entries=getattr(entries, name), own=flipped(getattr(self, name)))
        connect(m, entries=entries.beats, ring=ring.beats)
        connect(m, ring=ring.answered, entries=entries.answered)
        banks = [LookupBank(c) for _ in range(c.banks)]
        for number, bank in enumerate(banks):
            m.submodules[f"bank{number}"] = bank
            connect(m, ring=ring.requests[number], bank=bank.requests)
            connect(m, bank=bank.answers, ring=ring.answers[number])
            m.d.comb += [bank.clear_slots.eq(entries.clear), bank.restart.eq(self.restart)]
        m.d.comb += [
            entries.cleared.eq(Cat(bank.ready for bank in banks).all()),
            entries.restart.eq(self.restart),
            ring.restart.eq(self.restart),
        ]
        return m


@dataclasses.dataclass
class List:
    """A command with its entries (n, 2 array of row, table) and the faults of its bus words."""

    opcode: Opcode
    entries: np.ndarray
    flags: int = 0
    faults: dict = dataclasses.field(default_factory=dict)  # {word: fault}


def model(config, tables, lists, directory):
    """What each list must answer: (slots, counts and refusal)."""
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


class Lists:
    """Serve lists with a unit; check slots and outcomes against the model.

    Attributes
    ----------
    begun : int
        Cycle of the first command, once run.
    """

    def __init__(self, config, dut, gaps=STEADY, pauses=STEADY):
        self.config, self.dut, self.pauses = config, dut, pauses
        self.tables = tables_of(config)
        self.bench = StreamBench(dut)
        self.memory = ListMemory(self.bench, config, gaps=gaps, latency=LATENCY)
        self.memory.serve(dut.source)

    def command(self, one):
        address = self.memory.place(one.entries.astype(np.uint32))
        self.memory.read_faults.update(
            {address + word * self.config.bus_bytes: fault for word, fault in one.faults.items()})
        return {"opcode": one.opcode, "flags": one.flags, "source": address,
                "count": len(one.entries)}

    async def register(self, ctx):
        for _ in range(self.config.tables):
            await ctx.tick()  # the descriptors are cleared after reset
        update = self.dut.table_update
        for table, (last_row, parts_log2, part) in self.tables.items():
            ctx.set(update.enable, 1)
            ctx.set(update.index, table)
            ctx.set(update.entry, {
                "valid": 1, "last_row": last_row, "parts_log2": parts_log2, "part": part})
            await ctx.tick()
        ctx.set(update.enable, 0)

    async def give(self, ctx, order):
        ctx.set(self.dut.command.p, order)
        ctx.set(self.dut.command.valid, 1)
        await ctx.tick().until(self.dut.command.ready)
        ctx.set(self.dut.command.valid, 0)

    def check(self, lists, wanted, slots, outcomes):
        end = 0
        for number, (one, (want, counts), got) in enumerate(
                zip(lists, wanted, outcomes, strict=True)):
            here = slots[end:end + len(want)]
            end += len(want)
            assert [value for value, *_ in here] == want, f"list {number}, {one.opcode!r}"
            assert [last for *_, last in here] == [0] * (len(want) - 1) + [1] * bool(want)
            assert {name: getattr(got, name) for name in counts} == counts, f"list {number}"
            assert got.error_address == got.lookups == got.bytes == 0

    def sinks(self, wanted):
        slots = self.bench.sink(self.dut.slots, sum(len(want) for want, _ in wanted), self.pauses,
                                name="slots", read=lambda p: (p.value, p.present, p.last))
        return slots, self.bench.sink(self.dut.outcome, len(wanted), self.pauses, name="outcomes")

    def run(self, lists):
        """The cycles of the lists."""
        orders = [self.command(one) for one in lists]
        wanted = list(model(self.config, self.tables, lists, golden.Directory(self.config)))

        async def drive(ctx):
            await self.register(ctx)
            self.begun = self.bench.cycles
            for order in orders:
                await self.give(ctx, order)
        self.bench.process("commands", drive)
        sinks = self.sinks(wanted)
        cycles = self.bench.run(
            400 + 20 * sum(len(one.entries) for one in lists) + 100 * len(lists))
        self.check(lists, wanted, *sinks)
        return cycles - self.begun


def run(config, lists, gaps=STEADY, pauses=STEADY):
    """Through the played ring, as ragged as memory and sinks; the ring afterwards."""
    dut = built(InstallRemove, config)
    bench = Lists(config, dut, gaps, pauses)
    ring = Ring(bench.bench, dut, config, gaps, pauses)
    bench.run(lists)
    return ring


def rows(config, count, seed, wrong=0.0):
    """Rows of known tables; a share of `wrong` ones, half beyond the table, half without one."""
    rng = np.random.default_rng(seed)
    table = rng.integers(0, config.tables // 2, count)
    row = rng.integers(0, table * 10 + 6)
    kind = rng.random(count)
    row[kind < wrong / 2] += 1 << 20
    table[kind > 1 - wrong / 2] += rng.choice([config.tables // 2, config.tables, 1 << 16])
    return np.stack([row, table], axis=1)
