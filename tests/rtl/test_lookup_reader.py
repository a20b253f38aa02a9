import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract import BatchFlag, Opcode, Status
from hotrow_rtl.lookup_reader import LookupReader
from hotrow_rtl.range_check import RangeCheck
from hotrow_sim.cycles.lookup_reader import dense_cycles, jagged_cycles
from hotrow_sim.golden.lookups import read_batch
from hotrow_sim.listbench import ListMemory
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

TINY = preset("tiny")
CONFIGS = {bus: dataclasses.replace(TINY, name=f"bus-{bus}", bus_bytes=bus, burst_beats=4)
           for bus in (16, 32, 64)}
MANY_TABLES = dataclasses.replace(TINY, name="many-tables", tables=1024, batch_samples=64)
ID64, FEATURE_MAJOR, JAGGED = BatchFlag.ID64, BatchFlag.FEATURE_MAJOR, BatchFlag.JAGGED
LAYOUTS = [BatchFlag(0), ID64, FEATURE_MAJOR, ID64 | FEATURE_MAJOR]


def tables_of(config):
    """Descriptors that differ in every field the reader uses; the first has rows to the limit."""
    rng = np.random.default_rng(config.tables)
    last_rows = rng.integers(10, 1000, config.tables)
    last_rows[0] = (1 << 32) - 1
    return [{"valid": 1, "last_row": int(last_row), "parts_log2": number % 4, "part": number % 8}
            for number, last_row in enumerate(last_rows)]


async def register_tables(ctx, dut):
    await ctx.tick().until(dut.ready)
    for number, table in enumerate(tables_of(dut.config)):
        ctx.set(dut.table_update.enable, 1)
        ctx.set(dut.table_update.index, number)
        ctx.set(dut.table_update.entry, table)
        await ctx.tick()
    ctx.set(dut.table_update.enable, 0)


class Batch:
    """One batch with its buffers, and what the reader must say about it."""

    def __init__(self, config, flags, samples, columns, lengths=None, first_table=1, seed=0):
        rng = np.random.default_rng(seed)
        bags = samples * columns
        self.flags, self.samples, self.columns = flags, samples, columns
        self.first_table = min(first_table, config.tables - columns)
        self.lengths = None if lengths is None else np.asarray(lengths, np.uint16)
        self.count = bags if lengths is None else int(self.lengths.astype(int).sum())
        self.id_bytes = 8 if flags & ID64 else 4
        self.per_word = config.bus_bytes // self.id_bytes
        # Ids around the last row of their table, some far above, some equal but for high bits.
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

    def command(self):
        return {"opcode": Opcode.OBSERVE, "flags": int(self.flags), "source": self.source,
                "lengths": self.length_source, "count": self.count, "samples": self.samples,
                "first_table": self.first_table, "table_count": self.columns}

    def expected(self, config, faults=()):
        """(lane, table, row, sample, parts_log2, part, out_of_range, fault) per id.

        `faults` holds (first id, end, fault); the row of a faulty id is not compared.
        """
        tables, fault = tables_of(config), np.zeros(self.count, int)
        for first, end, value in faults:
            fault[first:end] = value
        for at in range(self.count):
            table = tables[self.lookups.table[at]]
            yield (at % self.per_word, int(self.lookups.table[at]),
                   None if fault[at] else int(self.lookups.row[at]) & 0xFFFF_FFFF,
                   int(self.lookups.sample[at]), table["parts_log2"], table["part"],
                   0 if fault[at] else int(self.refused[at]), int(fault[at]))


def lookups_of(beats):
    """The present lanes of beats, and the numbers of the beats that are `last`."""
    lookups, lasts = [], []
    for number, beat in enumerate(beats):
        for lane, lookup in enumerate(beat.lanes):
            if lookup.present:
                lookups.append((lane, lookup.key.table, None if lookup.fault else lookup.key.row,
                                lookup.sample, lookup.parts_log2, lookup.part,
                                lookup.out_of_range, lookup.fault))
        if beat.last:
            lasts.append(number)
    return lookups, lasts


def beats_in(batch):
    """Beats that the walk of a batch has: words, cut where a bag ends."""
    if batch.lengths is None:
        return -(-batch.count // batch.per_word)
    ends = np.cumsum(batch.lengths.astype(int))
    starts = ends - batch.lengths
    full = batch.lengths > 0
    return int(((ends[full] - 1) // batch.per_word - starts[full] // batch.per_word + 1).sum())


class Trace:
    """What the reader did with some batches.

    Faults are given by batch: {number: {word: fault}}. `cycles` run from the first command on.
    """

    def __init__(self, config, batches, gaps=STEADY, pauses=STEADY, id_faults=None,
                 length_faults=None, beats=None, latency=3):
        dut = LookupReader(config)
        bench = StreamBench(dut)
        memory = ListMemory(bench, config, gaps, latency=latency)
        commands = []
        for number, batch in enumerate(batches):
            jagged = batch.lengths is not None
            batch.source = memory.place(batch.ids)
            batch.length_source = memory.place(batch.lengths) if jagged else 0
            commands.append(batch.command())
            for start, faults in ((batch.source, id_faults), (batch.length_source, length_faults)):
                for word, fault in (faults or {}).get(number, {}).items():
                    memory.read_faults[start + config.bus_bytes * word] = fault
        memory.serve(dut.ids)
        memory.serve(dut.lengths)
        self.memory = memory

        async def drive(ctx):
            await register_tables(ctx, dut)
            self.start = bench.cycles
            for command in commands:
                ctx.set(dut.command.payload, command)
                ctx.set(dut.command.valid, 1)
                await ctx.tick().until(dut.command.ready)
            ctx.set(dut.command.valid, 0)
        bench.process("commands", drive)
        count = sum(map(beats_in, batches)) if beats is None else beats
        self.beats = bench.sink(dut.beats, count, pauses)
        self.verdicts = bench.sink(dut.verdict, len(batches), name="verdicts",
                                   read=lambda p: (p.status, p.error_index))
        self.bench = bench

    def run(self):
        self.bench.run(limit=100_000)
        self.cycles = self.bench.cycles - self.start
        self.lookups, self.lasts = lookups_of(self.beats)
        return self


def check(config, batches, gaps, pauses):
    trace = Trace(config, batches, gaps, pauses).run()
    assert trace.verdicts == [(0, 0)] * len(batches)
    assert trace.lookups == [lookup for batch in batches for lookup in batch.expected(config)]
    assert trace.lasts == list(np.cumsum([beats_in(batch) for batch in batches]) - 1)
    fetches = []
    for batch in batches:
        if batch.lengths is not None:
            fetches += 2 * [(batch.length_source, batch.lengths.nbytes)]
        fetches.append((batch.source, batch.ids.nbytes))
    assert sorted(trace.memory.fetches) == sorted(fetches)
    return trace.lookups


def dense_batches(config, flags):
    """Columns 1, 3, 26 and 31; samples from 1 on, so that words end anywhere in a sample."""
    shapes = [(1, 1), (7, 1), (1, 3), (5, 3), (13, 3), (2, 26), (5, 26), (3, 31), (40, 2)]
    return [Batch(config, flags, samples, columns, first_table=seed % 3, seed=seed)
            for seed, (samples, columns) in enumerate(shapes)]


@pytest.mark.parametrize("flags", LAYOUTS, ids=str)
@pytest.mark.parametrize("bus", CONFIGS)
def test_dense_batches_equal_golden(bus, flags):
    lookups = check(CONFIGS[bus], dense_batches(CONFIGS[bus], flags), STEADY, STEADY)
    refused = np.mean([lookup[6] for lookup in lookups])
    assert 0.05 < refused < 0.6, "both verdicts of the range check must occur"


@pytest.mark.parametrize("flags", [BatchFlag(0), ID64 | FEATURE_MAJOR], ids=str)
@pytest.mark.parametrize("gaps, pauses", [(STEADY, RAGGED), (RAGGED, STEADY), (RAGGED, RAGGED)],
                         ids=["back-pressure", "gaps", "both"])
def test_dense_batches_with_stalls(flags, gaps, pauses):
    check(TINY, dense_batches(TINY, flags), gaps, pauses)


def test_most_tables_and_samples():
    check(MANY_TABLES, [Batch(MANY_TABLES, flags, samples, columns, first_table=24)
                        for samples, columns in ((1, 1000), (64, 16))
                        for flags in (BatchFlag(0), FEATURE_MAJOR)], STEADY, STEADY)


@pytest.mark.parametrize("bus", CONFIGS)
@pytest.mark.parametrize("flags", [BatchFlag(0), ID64 | FEATURE_MAJOR], ids=str)
def test_a_word_a_cycle(bus, flags):
    """Once words flow, none waits: the model's cycles, exactly."""
    config = CONFIGS[bus]
    batch = Batch(config, flags, 20, 26)
    for latency in (1, 40):
        trace = Trace(config, [batch], latency=latency).run()
        assert trace.cycles == dense_cycles(config, flags, batch.count, latency)


def lengths_of(bags, kind, seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 9, bags) * (rng.random(bags) < 0.7)
    if kind == "first-empty":
        lengths[:min(3, bags - 1)] = 0
        lengths[-1] = 2
    if kind == "last-empty":
        lengths[0], lengths[-min(3, bags - 1):] = 5, 0
    if kind == "long":
        lengths[rng.integers(bags)] = 70
    if kind == "ones":
        lengths[:] = 1
    if kind == "single":
        lengths[:] = 0
        lengths[bags // 2] = 1
    lengths[bags // 2] += not lengths.any()
    return lengths


def jagged_batches(config, flags):
    kinds = ("random", "first-empty", "last-empty", "long", "ones", "single")
    shapes = [(1, 1), (4, 3), (9, 3), (1, 26), (2, 31), (20, 1)]
    return [Batch(config, flags | JAGGED, samples, columns,
                  lengths_of(samples * columns, kinds[(seed + turn) % len(kinds)], seed), seed=seed)
            for turn in (0, 3) for seed, (samples, columns) in enumerate(shapes)]


@pytest.mark.parametrize("flags", LAYOUTS, ids=str)
@pytest.mark.parametrize("bus", CONFIGS)
def test_jagged_batches_equal_golden(bus, flags):
    check(CONFIGS[bus], jagged_batches(CONFIGS[bus], flags), STEADY, STEADY)


@pytest.mark.parametrize("kind", ["random", "last-empty", "long", "ones", "single"])
@pytest.mark.parametrize("bus, flags", [(16, BatchFlag(0)), (64, ID64)])
def test_a_bag_a_cycle(bus, flags, kind):
    config = CONFIGS[bus]
    batch = Batch(config, flags | JAGGED, 9, 5, lengths_of(45, kind, 3))
    trace = Trace(config, [batch], latency=7).run()
    assert trace.cycles == jagged_cycles(config, flags, batch.lengths, 7)


@pytest.mark.parametrize("gaps, pauses", [(STEADY, RAGGED), (RAGGED, STEADY), (RAGGED, RAGGED)],
                         ids=["back-pressure", "gaps", "both"])
def test_jagged_batches_with_stalls(gaps, pauses):
    dense_between = dense_batches(TINY, BatchFlag(0))
    batches = jagged_batches(TINY, FEATURE_MAJOR)
    check(TINY, [batch for pair in zip(batches, dense_between) for batch in pair], gaps, pauses)


@pytest.mark.parametrize("difference", [1, -1, 70000])
def test_sum_of_lengths_is_checked_first(difference):
    """The wrong batch has no beats; the next ones are read as if it had not been there."""
    wrong = Batch(TINY, JAGGED, 10, 3, lengths_of(30, "random", 1))
    actual, wrong.count = wrong.count, wrong.count + difference
    after = [Batch(TINY, JAGGED, 4, 3, lengths_of(12, "random", 2)),
             Batch(TINY, BatchFlag(0), 3, 3)]
    trace = Trace(TINY, [wrong, *after], beats=sum(map(beats_in, after))).run()
    assert trace.verdicts == [(Status.LOOKUPS, actual), (0, 0), (0, 0)]
    assert trace.lookups == [lookup for batch in after for lookup in batch.expected(TINY)]
    assert wrong.source not in dict(trace.memory.fetches)


def test_the_largest_sum():
    batch = Batch(TINY, JAGGED, 64, 32, np.full(64 * 32, 1))
    batch.lengths[:] = 0xFFFF
    assert Trace(TINY, [batch], beats=0).run().verdicts == [(Status.LOOKUPS, 0xFFFF * 64 * 32)]


@pytest.mark.parametrize("fault", [1, 2, 3])
@pytest.mark.parametrize("word", [0, 2, 3])
def test_fault_in_the_lengths_refuses_the_batch(fault, word):
    batch = Batch(TINY, JAGGED, 8, 4, lengths_of(32, "random", 3))
    after = Batch(TINY, BatchFlag(0), 3, 3)
    trace = Trace(TINY, [batch, after], beats=beats_in(after),
                  length_faults={0: {word: fault}}).run()
    assert trace.verdicts == [(Status.SLVERR - 1 + fault, 0), (0, 0)]
    assert trace.lookups == list(after.expected(TINY))


@pytest.mark.parametrize("flags", [BatchFlag(0), ID64, JAGGED], ids=str)
@pytest.mark.parametrize("word", [0, 3, -1])
def test_fault_marks_the_ids_of_its_word(flags, word):
    lengths = lengths_of(30, "random", 4) if flags & JAGGED else None
    batch = Batch(TINY, flags, 10, 3, lengths)
    word %= -(-batch.ids.nbytes // TINY.bus_bytes)
    trace = Trace(TINY, [batch], id_faults={0: {word: 2}}).run()
    first = word * batch.per_word
    assert trace.verdicts == [(0, 0)]
    assert trace.lookups == list(batch.expected(TINY, [(first, first + batch.per_word, 2)]))


def test_a_faulty_word_is_not_called_out_of_range():
    """Its data mean nothing, even where they look like a row that the table does not have."""
    dut = RangeCheck(TINY)
    bench = StreamBench(dut)
    lanes = [{"present": 1, "id": (1 << 64) - 1, "table": 1, "fault": fault} for fault in range(4)]

    async def drive(ctx):
        await register_tables(ctx, dut)
        ctx.set(dut.unchecked.p, {"lanes": lanes, "last": 1})
        ctx.set(dut.unchecked.valid, 1)
        await ctx.tick().until(dut.unchecked.ready)
        ctx.set(dut.unchecked.valid, 0)
    bench.process("a beat", drive)
    beats = bench.sink(dut.beats, 1)
    bench.run(limit=200)
    assert [(lane.out_of_range, lane.fault) for lane in beats[0].lanes] == [
        (1, 0), (0, 1), (0, 2), (0, 3)]


class FaultOnSecondPass(dict):
    """A word that reads well once and faults from then on."""

    def __init__(self, address, fault):
        super().__init__()
        self.address, self.fault, self.passes = address, fault, 0

    def get(self, address, default=0):
        self.passes += address == self.address
        return self.fault if address == self.address and self.passes > 1 else default


def test_fault_in_the_second_pass_refuses_the_rest():
    """Exactly `count` lookups leave whatever happens; from the unknown length on, all faulty."""
    batch, after = Batch(TINY, JAGGED, 8, 4, np.full(32, 3)), Batch(TINY, BatchFlag(0), 3, 3)
    known = 3 * 2 * TINY.lanes  # ids of one word of lengths
    head = Batch(TINY, JAGGED, 8, 1, np.full(8, 3))
    beats = beats_in(head) + (batch.count - known) // TINY.lanes
    trace = Trace(TINY, [batch, after], beats=beats + beats_in(after))
    trace.memory.read_faults = FaultOnSecondPass(batch.length_source + TINY.bus_bytes, 1)
    lookups = trace.run().lookups
    assert trace.verdicts == [(0, 0), (0, 0)]
    assert trace.lasts == [beats - 1, beats + beats_in(after) - 1]
    assert lookups[:known] == list(batch.expected(TINY))[:known]
    assert [lookup[7] for lookup in lookups[known:batch.count]] == [1] * (batch.count - known)
    assert lookups[batch.count:] == list(after.expected(TINY))


@pytest.mark.parametrize("flags", [BatchFlag(0), JAGGED], ids=str)
@pytest.mark.parametrize("after", range(2, 40, 9))
def test_restart_forgets_the_batch_and_keeps_the_tables(flags, after):
    dut = LookupReader(TINY)
    bench = StreamBench(dut)
    batch = Batch(TINY, flags, 8, 4, lengths_of(32, "random", 5) if flags & JAGGED else None)
    fresh = Batch(TINY, BatchFlag(0), 3, 3, seed=9)
    beats = []

    async def drive(ctx):
        async def serve(port, content, cycles):
            """Words of `content`, whatever was requested; give up after so many cycles."""
            words = [content[i:i + 16] for i in range(0, len(content), 16)]
            ctx.set(port.request.ready, 1)
            for _ in range(cycles):
                ctx.set(port.words.valid, bool(words))
                if words:
                    ctx.set(port.words.p, {"data": int.from_bytes(words[0], "little"),
                                           "last": int(len(words) == 1)})
                _, _, taken, valid, beat = await ctx.tick().sample(
                    port.words.ready, dut.beats.valid, dut.beats.p)
                if taken and words:
                    words.pop(0)
                if valid:
                    beats.append(beat)
            ctx.set(port.words.valid, 0)
            ctx.set(port.request.ready, 0)

        await register_tables(ctx, dut)
        ctx.set(dut.beats.ready, 1)
        ctx.set(dut.verdict.ready, 1)
        for attempt, cycles in ((batch, after), (fresh, 40)):
            beats.clear()
            attempt.source = attempt.length_source = 0
            ctx.set(dut.command.payload, attempt.command())
            ctx.set(dut.command.valid, 1)
            await ctx.tick().until(dut.command.ready)
            ctx.set(dut.command.valid, 0)
            content = attempt.lengths if attempt.lengths is not None else attempt.ids
            port = dut.lengths if attempt.lengths is not None else dut.ids
            await serve(port, content.tobytes(), cycles)
            if attempt is batch:
                ctx.set(dut.restart, 1)
                await ctx.tick()
                ctx.set(dut.restart, 0)
                assert ctx.get(dut.ready), "the tables' copies were cleared"
                for stream in (dut.beats, dut.verdict, dut.ids.request, dut.lengths.request):
                    assert not ctx.get(stream.valid), "something survived the restart"
    bench.process("restart", drive)
    bench.run(limit=400)
    assert lookups_of(beats)[0] == list(fresh.expected(TINY))
