"""Batches for the lookup reader in Amaranth's simulator, and its expected output."""

import dataclasses

import numpy as np
from hotrow_rtl.config import log2
from hotrow_rtl.contract.encoding import BatchFlag, Opcode
from hotrow_rtl.lookup.reader.reader import LookupReader
from hotrow_sim.golden.lookup.reader import read_batch

from ..simulation import built
from .command_parts import register
from .list_bus import ListBus
from .stream_bench import STEADY, StreamBench

ID64 = BatchFlag.ID64


KINDS = ("random", "first-empty", "last-empty", "long", "ones", "single", "short", "half-empty")


def lengths_of(bags, kind, seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 9, bags) * (rng.random(bags) < 0.7)
    match kind:
        case "first-empty":
            lengths[:min(3, bags - 1)] = 0
            lengths[-1] = 2
        case "last-empty":
            lengths[0], lengths[-min(3, bags - 1):] = 5, 0
        case "long":
            lengths[rng.integers(bags)] = 70
        case "ones":
            lengths[:] = 1
        case "single":
            lengths[:] = 0
            lengths[bags // 2] = 1
        case "short":
            lengths = rng.integers(0, 4, bags)
        case "half-empty":
            lengths = rng.integers(1, 4, bags) * (rng.random(bags) < 0.5)
        case "mostly-empty":
            lengths = rng.integers(1, 9, bags) * (rng.random(bags) < 0.1)
        case "twenty":
            lengths[:] = 20
        case "huge":
            lengths = rng.integers(0, 2, bags) * 900 + rng.integers(0, 200, bags)
    lengths[bags // 2] += not lengths.any()
    return lengths


def tables_of(config):
    """Descriptors that differ in every field the reader uses; the first has the most rows."""
    rng = np.random.default_rng(config.tables)
    last_rows = rng.integers(10, 1000, config.tables)
    last_rows[0] = (1 << config.row_width) - 1
    parts = config.directory_partitions
    return [{"valid": 1, "last_row": int(last_row), "parts_log2": number % (log2(parts) + 1),
             "part": number % parts}
            for number, last_row in enumerate(last_rows)]


async def register_tables(ctx, dut):
    await ctx.tick().until(dut.ready)
    await register(ctx, dut.table_update, dict(enumerate(tables_of(dut.config))))


class Batch:
    """One batch with its buffers, and the expected output of the reader."""

    def __init__(self, config, flags, samples, columns, lengths=None, first_table=1, seed=0):
        rng = np.random.default_rng(seed)
        bags = samples * columns
        self.flags, self.samples, self.columns = flags, samples, columns
        self.first_table = min(first_table, config.tables - columns)
        self.lengths = None if lengths is None else np.asarray(lengths, np.uint16)
        self.count = bags if lengths is None else int(self.lengths.astype(int).sum())
        self.id_bytes = 8 if flags & ID64 else 4
        self.per_word = config.bus_bytes // self.id_bytes
        self.per_beat = min(config.lanes, self.per_word)
        # Ids around the last row of their table, some far above, some with other high bits only.
        tables = tables_of(config)
        bare = np.zeros(self.count, np.uint64)
        self.lookups = read_batch(bare, samples, self.first_table, columns, flags, self.lengths)
        last_row = np.array([tables[t]["last_row"] for t in self.lookups.table], np.uint64)
        ids = np.clip(last_row.astype(np.int64) + rng.integers(-9, 3, self.count), 0, None)
        ids = ids.astype(np.uint64)
        if flags & ID64:
            ids += (rng.random(self.count) < 0.1).astype(np.uint64) << np.uint64(32 + seed % 32)
        else:
            ids = np.where(rng.random(self.count) < 0.05, 0xFFFF_FFFF, ids) & 0xFFFF_FFFF
        self.ids = ids.astype(np.uint64 if flags & ID64 else np.uint32)
        self.lookups = dataclasses.replace(self.lookups, row=self.ids.astype(np.uint64))
        self.refused = self.lookups.row > last_row

    def place(self, memory):
        self.source = memory.place(self.ids)
        self.length_source = 0 if self.lengths is None else memory.place(self.lengths)

    def command(self):
        return {"opcode": Opcode.OBSERVE, "flags": int(self.flags), "source": self.source,
                "lengths": self.length_source, "count": self.count, "samples": self.samples,
                "first_table": self.first_table, "table_count": self.columns}

    def expected(self, config, faults=()):
        """(lane, table, row, sample, parts_log2, part, out_of_range, fault) per id.

        `faults` holds (first id, end, fault); the row of a refused or faulty id is not compared.
        """
        tables, fault = tables_of(config), np.zeros(self.count, int)
        for first, end, value in faults:
            fault[first:end] = value
        columns = (self.lookups.table, self.lookups.row, self.lookups.sample, self.refused, fault)
        for at, (table, row, sample, refused, fault) in enumerate(
                zip(*(column.tolist() for column in columns), strict=True)):
            yield (at % self.per_beat, table, None if fault or refused else row, sample,
                   tables[table]["parts_log2"], tables[table]["part"],
                   0 if fault else int(refused), fault)


def lookups_of(beats):
    """The valid lanes of beats, and the numbers of the beats that are `last`."""
    lookups, lasts = [], []
    for number, beat in enumerate(beats):
        for lane, lookup in enumerate(beat.lanes):
            if lookup.present:
                refused = lookup.fault or lookup.out_of_range
                lookups.append((lane, lookup.key.table, None if refused else lookup.key.row,
                                lookup.sample, lookup.parts_log2, lookup.part,
                                lookup.out_of_range, lookup.fault))
        if beat.last:
            lasts.append(number)
    return lookups, lasts


def beats_in(batch):
    """Beats of a batch: its bus words of ids, or with one lane its ids."""
    return -(-batch.count // batch.per_beat)


class Trace:
    """A run of the reader over some batches.

    Faults are {batch: {word: fault}}. `cycles`, and the cycles in which each beat, verdict and
    command was accepted, count from the first command.
    """

    def __init__(self, config, batches, gaps=STEADY, pauses=STEADY, id_faults=None,
                 length_faults=None, beats=None, latency=3, verdict_pauses=STEADY):
        dut = built(LookupReader, config)
        bench = StreamBench(dut)
        memory = ListBus(bench, config, latency=latency)
        commands = []
        for number, batch in enumerate(batches):
            batch.place(memory)
            commands.append(batch.command())
            for start, faults in ((batch.source, id_faults), (batch.length_source, length_faults)):
                for word, fault in (faults or {}).get(number, {}).items():
                    memory.read_faults[start + config.bus_bytes * word] = fault
        memory.share([dut.ids, dut.lengths], gaps)
        self.memory, self.bench = memory, bench
        self.beat_cycles, self.verdict_cycles, self.command_cycles = [], [], []

        async def drive(ctx):
            await register_tables(ctx, dut)
            self.start = bench.cycles
            for command in commands:
                ctx.set(dut.command.payload, command)
                ctx.set(dut.command.valid, 1)
                await ctx.tick().until(dut.command.ready)
                self.command_cycles.append(bench.cycles)
            ctx.set(dut.command.valid, 0)
        bench.process("commands", drive)

        def noted(cycles, read):
            def note(payload):
                cycles.append(bench.cycles)
                return read(payload)
            return note
        count = sum(map(beats_in, batches)) if beats is None else beats
        self.beats = bench.sink(dut.beats, count, pauses, name="beats",
                                read=noted(self.beat_cycles, lambda beat: beat))
        self.verdicts = bench.sink(
            dut.verdict, len(batches), verdict_pauses, name="verdicts",
            read=noted(self.verdict_cycles, lambda p: (p.status, p.error_index)))

    def run(self, limit=100_000):
        self.bench.run(limit)
        self.cycles = self.bench.cycles - self.start
        for cycles in (self.beat_cycles, self.verdict_cycles, self.command_cycles):
            cycles[:] = [at - self.start for at in cycles]
        self.lookups, self.lasts = lookups_of(self.beats)
        return self
