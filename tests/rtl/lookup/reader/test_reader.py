import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import BatchFlag, Status
from hotrow_rtl.lookup.reader.range_check import RangeCheck
from hotrow_rtl.lookup.reader.reader import LookupReader
from hotrow_sim.golden.lookup.reader import read_batch

from tests.support.benches.list_bus import ListBus
from tests.support.benches.lookup_bench import (
    KINDS,
    Batch,
    Trace,
    beats_in,
    lengths_of,
    lookups_of,
    register_tables,
)
from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
CONFIGS = {bus: dataclasses.replace(
    TINY, name=f"bus-{bus}", bus_bytes=bus, address_width=address_width, counter_sets=256,
    directory_sets=256, miss_entries=1024, batch_samples=64)  # keep 32 or 64 lengths
    for bus, address_width in ((16, 32), (32, 64), (64, 64))}
CONFIGS["one"] = dataclasses.replace(CONFIGS[16], name="one-lane", lookup_lanes=1, lane_banks=1)
CONFIGS["ecp5"] = preset("ecp5")
MANY_TABLES = dataclasses.replace(TINY, name="many-tables", tables=1024, batch_samples=64)
ID64, FEATURE_MAJOR, JAGGED = BatchFlag.ID64, BatchFlag.FEATURE_MAJOR, BatchFlag.JAGGED
STALLS = pytest.mark.parametrize("gaps, pauses", [
    pytest.param(STEADY, RAGGED, id="back-pressure", marks=pytest.mark.slow),
    pytest.param(RAGGED, STEADY, id="gaps", marks=pytest.mark.slow),
    pytest.param(RAGGED, RAGGED, id="both")])
LAYOUTS = [BatchFlag(0), ID64, FEATURE_MAJOR, ID64 | FEATURE_MAJOR]
TIERS = {(16, LAYOUTS[0]): (), (16, LAYOUTS[-1]): (), ("one", LAYOUTS[1]): (),
         ("ecp5", LAYOUTS[0]): (), ("ecp5", LAYOUTS[-1]): (), (16, LAYOUTS[1]): pytest.mark.slow,
         (16, LAYOUTS[2]): pytest.mark.slow, (64, LAYOUTS[-1]): pytest.mark.slow}
EVERY_LAYOUT = pytest.mark.parametrize("bus, flags", [
    pytest.param(bus, flags, marks=TIERS.get((bus, flags), pytest.mark.long))
    for bus in CONFIGS for flags in LAYOUTS])


def fetches_of(config, batch):
    """The lists that the reader asks for: lengths that do not fit the store, twice."""
    if batch.lengths is None:
        return [(batch.source, batch.ids.nbytes)]
    times = 1 + (len(batch.lengths) > config.stored_lengths)
    return times * [(batch.length_source, batch.lengths.nbytes)] + [
        (batch.source, batch.ids.nbytes)]


def check(config, batches, gaps=STEADY, pauses=STEADY, **kwargs):
    trace = Trace(config, batches, gaps, pauses, **kwargs).run()
    lasts = np.cumsum([beats_in(batch) for batch in batches]) - 1
    assert trace.verdicts == [(0, 0)] * len(batches)
    assert trace.lookups == [lookup for batch in batches for lookup in batch.expected(config)]
    assert trace.lasts == list(lasts)
    assert sorted(trace.memory.fetches) == sorted(
        fetch for batch in batches for fetch in fetches_of(config, batch))
    if kwargs.get("verdict_pauses", STEADY) is STEADY:
        firsts = [trace.beat_cycles[last] for last in [0, *(lasts[:-1] + 1)]]
        assert all(verdict < first for verdict, first in zip(
            trace.verdict_cycles, firsts, strict=True))
    return trace


def dense_batches(config, flags):
    """Columns 1, 2, 3, 26 and 31; samples from 1 on, so that words end anywhere in a sample."""
    shapes = [(1, 1), (7, 1), (1, 3), (5, 3), (13, 3), (2, 26), (5, 26), (3, 31), (40, 2)]
    return [Batch(config, flags, samples, columns, first_table=seed % 3, seed=seed)
            for seed, (samples, columns) in enumerate(shapes)]


@EVERY_LAYOUT
def test_dense_batches_equal_golden(bus, flags):
    lookups = check(CONFIGS[bus], dense_batches(CONFIGS[bus], flags)).lookups
    refused = np.mean([lookup[6] for lookup in lookups])
    assert 0.05 < refused < 0.6, "both verdicts of the range check must occur"


@pytest.mark.slow
@STALLS
def test_dense_batches_with_stalls(gaps, pauses):
    check(TINY, dense_batches(TINY, ID64 | FEATURE_MAJOR), gaps, pauses)


@pytest.mark.long
def test_most_tables_and_samples():
    check(MANY_TABLES, [Batch(MANY_TABLES, flags, samples, columns, first_table=24)
                        for samples, columns in ((1, 1000), (64, 16))
                        for flags in (BatchFlag(0), FEATURE_MAJOR)])


def jagged_batches(config, flags):
    shapes = [(1, 1), (4, 3), (9, 3), (1, 26), (2, 31), (20, 1), (40, 2)]
    return [Batch(config, flags | JAGGED, samples, columns,
                  lengths_of(samples * columns, KINDS[(seed + turn) % len(KINDS)], seed), seed=seed)
            for turn in (0, 3) for seed, (samples, columns) in enumerate(shapes)]


@pytest.mark.slow
@EVERY_LAYOUT
def test_jagged_batches_equal_golden(bus, flags):
    """With lengths that fit the store and lengths that do not."""
    check(CONFIGS[bus], jagged_batches(CONFIGS[bus], flags))


@pytest.mark.slow
@STALLS
@pytest.mark.parametrize("flags", [FEATURE_MAJOR, pytest.param(ID64, marks=pytest.mark.long)],
                         ids=str)
def test_jagged_batches_with_stalls(flags, gaps, pauses):
    config = CONFIGS[16]
    dense_between = dense_batches(config, BatchFlag(0))
    batches = jagged_batches(config, flags)
    check(config, [batch for pair in zip(batches, dense_between, strict=False) for batch in pair],
          gaps, pauses, verdict_pauses=pauses)


@pytest.mark.long
@pytest.mark.parametrize("flags", [
    JAGGED | FEATURE_MAJOR, *(pytest.param(flags, marks=pytest.mark.long)
                              for flags in (BatchFlag(0), JAGGED, FEATURE_MAJOR))], ids=str)
def test_as_many_samples_as_fit(flags):
    bags = TINY.batch_samples * 3
    batches = [Batch(TINY, flags, TINY.batch_samples, 3,
                     lengths_of(bags, "random", seed) if flags & JAGGED else None, seed=seed)
               for seed in range(2)]
    check(TINY, batches)


def test_sum_of_lengths_is_checked_first():
    """A wrong batch has no beats; the next ones are read as if it had not been there."""
    batches, verdicts = [], []
    for difference in (1, -1, 70000):
        wrong = Batch(TINY, JAGGED, 10, 3, lengths_of(30, "random", 1))
        verdicts += [(Status.LOOKUPS, wrong.count), (0, 0), (0, 0)]
        wrong.count += difference
        batches += [wrong, Batch(TINY, JAGGED, 4, 3, lengths_of(12, "random", 2)),
                    Batch(TINY, BatchFlag(0), 3, 3)]
    good = [batch for number, batch in enumerate(batches) if number % 3]
    trace = Trace(TINY, batches, beats=sum(map(beats_in, good))).run()
    assert trace.verdicts == verdicts
    assert trace.lookups == [lookup for batch in good for lookup in batch.expected(TINY)]
    assert not {batch.source for batch in batches[::3]} & set(dict(trace.memory.fetches))


@pytest.mark.slow
def test_a_refused_batch_leaves_nothing_in_the_store():
    """Its lengths come between those of batches that wait for their ids."""
    batches = [Batch(TINY, JAGGED, 10, 6, lengths_of(60, kind, seed), seed=seed)
               for seed, kind in enumerate(("long", "ones", "twenty", "random", "short"))]
    batches[1].count += 1
    batches[3].count -= 1
    good = batches[::2]
    trace = Trace(TINY, batches, beats=sum(map(beats_in, good)), latency=20).run()
    assert [status for status, _ in trace.verdicts] == [0, Status.LOOKUPS, 0, Status.LOOKUPS, 0]
    assert trace.lookups == [lookup for batch in good for lookup in batch.expected(TINY)]


def test_refused_batches_leave_room_in_the_store():
    config = CONFIGS[16]
    batches = [Batch(config, JAGGED, 16, 2, lengths_of(32, "short", seed)) for seed in range(4)]
    for batch in batches[:-1]:
        assert len(batch.lengths) == config.stored_lengths
        batch.count += 1
    trace = Trace(config, batches, beats=beats_in(batches[-1])).run(limit=2000)
    assert trace.lookups == list(batches[-1].expected(config))


def test_the_largest_sum():
    batch = Batch(TINY, JAGGED, 64, 32, np.full(64 * 32, 1))
    batch.lengths[:] = 0xFFFF
    assert Trace(TINY, [batch], beats=0).run().verdicts == [(Status.LOOKUPS, 0xFFFF * 64 * 32)]


def test_fault_in_the_lengths_refuses_the_batch():
    """Whichever fault, in whichever word of them; the next batch is read."""
    batches, verdicts, faults = [], [], {}
    for fault in (1, 2, 3):
        for word in (0, 2, 3):
            faults[len(batches)] = {word: fault}
            batches += [Batch(TINY, JAGGED, 8, 4, lengths_of(32, "random", 3)),
                        Batch(TINY, BatchFlag(0), 3, 3)]
            verdicts += [(Status.SLVERR - 1 + fault, 0), (0, 0)]
    good = batches[1::2]
    trace = Trace(TINY, batches, beats=sum(map(beats_in, good)), length_faults=faults).run()
    assert trace.verdicts == verdicts
    assert trace.lookups == [lookup for batch in good for lookup in batch.expected(TINY)]


def test_fault_marks_the_ids_of_its_word():
    batches, faults, expected = [], {}, []
    for flags in (BatchFlag(0), ID64, JAGGED):
        for fault, word in enumerate((0, 3, -1), 1):
            batch = Batch(TINY, flags, 10, 3,
                          lengths_of(30, "random", 4) if flags & JAGGED else None)
            at = word % -(-batch.ids.nbytes // TINY.bus_bytes)
            first = at * batch.per_word
            faults[len(batches)] = {at: fault}
            batches.append(batch)
            expected += batch.expected(TINY, [(first, first + batch.per_word, fault)])
    trace = Trace(TINY, batches, id_faults=faults).run()
    assert trace.verdicts == [(0, 0)] * len(batches)
    assert trace.lookups == expected


def test_a_faulty_word_is_not_called_out_of_range():
    """Its data mean nothing, even where they look like a row that the table does not have."""
    dut = built(RangeCheck, TINY)
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


class SecondPass(dict):
    """Read faults; and what happens when a word is read for the second time."""

    def __init__(self, memory, address, fault=0, word=None):
        super().__init__()
        self.memory, self.address, self.fault, self.word = memory, address, fault, word
        self.passes = 0

    def get(self, address, default=0):
        self.passes += address == self.address
        if address != self.address or self.passes < 2:
            return default
        if self.word is not None:
            self.memory.bytes[address:address + len(self.word)] = self.word
        return self.fault


def second_pass(**change):
    """A batch whose lengths do not fit the store, and its lookups; another follows.

    What changes is the second word of the lengths, when it is read again.
    """
    config = CONFIGS[16]
    batch = Batch(config, JAGGED, 16, 4, np.full(64, 3))
    after = Batch(config, JAGGED, 16, 3, lengths_of(48, "random", 7))
    trace = Trace(config, [batch, after])
    trace.memory.read_faults = SecondPass(
        trace.memory, batch.length_source + config.bus_bytes, **change)
    trace.run()
    beats = beats_in(batch)
    assert trace.verdicts == [(0, 0), (0, 0)]
    assert trace.lasts == [beats - 1, beats + beats_in(after) - 1]
    assert trace.lookups[batch.count:] == list(after.expected(config))
    return config, batch, trace.lookups[:batch.count]


@pytest.mark.parametrize("fault", [1, 2, 3])
def test_fault_in_the_second_pass_refuses_the_rest(fault):
    """Exactly `count` lookups leave whatever happens; from the unknown length on, all faulty."""
    config, batch, lookups = second_pass(fault=fault)
    known = 3 * 8  # ids of one word of lengths
    assert lookups[:known] == list(batch.expected(config))[:known]
    assert [lookup[7] for lookup in lookups[known:]] == [fault] * (batch.count - known)


@pytest.mark.parametrize("first, length", [
    (0, 0), (5, 4), *(pytest.param(*case, marks=pytest.mark.slow)
                      for case in ((2, 2), (7, 6), (100, 100)))])
def test_other_lengths_in_the_second_pass(first, length):
    """The last bag takes what they leave, or those are empty that find nothing left."""
    changed = np.array([first, *7 * [length]], np.uint16)
    _, batch, lookups = second_pass(word=changed.tobytes())
    lengths = batch.lengths.astype(int)
    lengths[8:16] = changed
    ends = np.minimum(np.cumsum(lengths), batch.count)
    ends[-1] = batch.count
    named = read_batch(batch.ids, batch.samples, batch.first_table, batch.columns, batch.flags,
                       np.diff(ends, prepend=0))
    assert [lookup[1] for lookup in lookups] == named.table.tolist()
    assert [lookup[3] for lookup in lookups] == named.sample.tolist()
    assert [lookup[7] for lookup in lookups] == [0] * batch.count


@pytest.mark.slow
@pytest.mark.parametrize("flags", [BatchFlag(0), JAGGED], ids=str)
@pytest.mark.parametrize("afters", [
    pytest.param(range(3, 90, 29), id="few"),
    pytest.param(range(4, 200, 7), id="many", marks=pytest.mark.long)])
def test_restart_forgets_batches_and_keeps_the_tables(flags, afters):
    """In the middle of one batch, with the next one requested; the batches after it are right."""
    config = CONFIGS[16]
    dut = built(LookupReader, config)
    bench = StreamBench(dut)
    memory = ListBus(bench, config, latency=8)

    def batches_of(shapes, flags):
        for seed, (bags, kind) in enumerate(shapes):
            lengths = lengths_of(bags * 2, kind, seed) if flags & JAGGED else None
            batch = Batch(config, flags, bags, 2, lengths, seed=seed)
            batch.place(memory)
            yield batch
    cut = [*batches_of([(20, "long"), (10, "random"), (12, "ones")], flags)]
    fresh = [*batches_of([(9, "random"), (30, "short")], JAGGED ^ flags),
             *batches_of([(7, "random"), (30, "ones")], flags)]
    memory.share([dut.ids, dut.lengths])

    async def play(ctx, batches, cycles=None):
        """Offer batches for so many cycles, or until they have been read; return the beats."""
        waiting, beats = [batch.command() for batch in batches], []
        while cycles != 0 and (cycles or sum(beat.last for beat in beats) < len(batches)):
            ctx.set(dut.command.valid, bool(waiting))
            ctx.set(dut.command.payload, waiting[0] if waiting else {})
            _, _, ready, valid, beat = await ctx.tick().sample(
                dut.command.ready, dut.beats.valid, dut.beats.p)
            if ready and waiting:
                waiting.pop(0)
            if valid:
                beats.append(beat)
            cycles = cycles and cycles - 1
        ctx.set(dut.command.valid, 0)
        return beats

    async def drive(ctx):
        await register_tables(ctx, dut)
        ctx.set(dut.beats.ready, 1)
        ctx.set(dut.verdict.ready, 1)
        for after in afters:
            await play(ctx, cut, after)
            ctx.set(dut.restart, 1)
            memory.restart()
            await ctx.tick()
            ctx.set(dut.restart, 0)
            assert ctx.get(dut.ready), "the tables' copies were cleared"
            for stream in (dut.beats, dut.verdict, dut.ids.request, dut.lengths.request):
                assert not ctx.get(stream.valid), f"{after=}: something survived the restart"
            beats = await play(ctx, fresh)
            assert lookups_of(beats)[0] == [
                lookup for batch in fresh for lookup in batch.expected(config)], f"{after=}"
    bench.process("restart", drive)
    bench.run(limit=2000 * len(afters))
