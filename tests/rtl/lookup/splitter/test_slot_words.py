"""Slot words, marks and tally of beats whose owners have been answered, beside plain NumPy."""

import dataclasses

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import MISS_FLAG, NO_SLOT, Status
from hotrow_rtl.interfaces.lookup_payloads import DirectoryOp, crossbar_response, lane_results
from hotrow_rtl.interfaces.records import outcome
from hotrow_rtl.lookup.splitter.batch_statistics import BatchStatistics
from hotrow_rtl.lookup.splitter.bitmap_write_rounds import marked_beat
from hotrow_rtl.lookup.splitter.miss_numbering import split_beat
from hotrow_rtl.lookup.splitter.slot_words import SlotWords
from hotrow_rtl.primitives.stream_routing import fork
from hotrow_sim.golden.lookup.combiner import owners

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = dataclasses.replace(preset("tiny"), planner=False)
ONE_LANE = dataclasses.replace(TINY, name="one-lane", lookup_lanes=1, lane_banks=1)
CONFIGS = [TINY, ONE_LANE, dataclasses.replace(TINY, name="reach-15", window_beats=15),
           dataclasses.replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256,
                               directory_sets=256, miss_entries=1024, window_beats=5)]
COUNTS = ("status", "error_index", "lookups", "hits", "misses", "unique", "refused")


class Ends(wiring.Component):
    """Slot words, marks and tally of the same beats, with a planner in batches of one operation."""

    def __init__(self, config, op=DirectoryOp.FIND):
        self.config, self.op = config, op
        beats = crossbar_response(config, split_beat(config), config.slot_word_width)
        super().__init__({
            "beats": In(stream.Signature(beats)),
            "slots": Out(stream.Signature(lane_results(config, 32))),
            "marks": Out(stream.Signature(marked_beat(config))),
            "outcome": Out(stream.Signature(outcome)),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.lanes = lanes = SlotWords(self.config)
        m.submodules.tally = tally = BatchStatistics(self.config)
        fork(m, self.beats, lanes.beats, tally.beats)
        if self.config.planner:
            m.d.comb += lanes.op.eq(self.op)
        for unit in (lanes, tally):
            m.d.comb += [unit.beats.p.eq(self.beats.p), unit.restart.eq(self.restart)]
        connect(m, lanes=lanes.slots, outer=flipped(self.slots))
        connect(m, lanes=lanes.marks, outer=flipped(self.marks))
        connect(m, tally=tally.outcome, outer=flipped(self.outcome))
        return m


class Batch:
    """Random lookups with random answers: `beats` to give, `slots`, `marks`, `counts` to expect."""

    def __init__(self, config, beats, seed, splits=1):
        rng = np.random.default_rng(seed)
        n = beats * config.lanes
        key = rng.choice(rng.integers(1 << 40, size=12), n)
        if rng.random() < 0.5:
            key[n // 2:] = rng.integers(1 << 40, size=n - n // 2)
        self.present = rng.random(n) < 0.9
        refused = self.present & (rng.random(n) < rng.choice([0, 0.1]))
        status = np.where(refused, rng.choice([Status.ROW_OUT_OF_RANGE, Status.DECERR], n), 0)
        beat = np.arange(n) // config.lanes
        served = np.flatnonzero(self.present & ~refused)
        owner = np.full(n, -1)
        owner[served] = served[owners(key[served].astype(np.uint64), beat[served],
                                      config.window_beats)]
        amount = np.bincount(owner[owner >= 0], minlength=n)
        answer = rng.integers(0, config.slots, n)  # slot, or number of a miss
        missed = (rng.random(n) < 0.4) & bool(splits)
        listed, counted, kept = (rng.random(n) < 0.5 for _ in range(3))
        self.sample = rng.integers(0, config.batch_samples, n)
        word = np.where(missed, answer | MISS_FLAG, answer)
        joins = (owner >= 0) & (owner != np.arange(n))
        owns = (owner >= 0) & ~joins
        self.slots = np.where(refused, NO_SLOT, word[owner])
        self.marks = self.present & (refused | missed[owner])
        self.splits, self.lanes = splits, config.lanes
        misses = int(amount[owns & missed].sum() if splits else np.count_nonzero(owns & ~counted))
        first = np.flatnonzero(refused)
        self.counts = {
            "status": int(status[first[0]]) if len(first) else 0,
            "error_index": int(np.count_nonzero(self.present[:first[0]])) if len(first) else 0,
            "lookups": len(served), "misses": misses, "hits": len(served) - misses,
            "unique": int(np.count_nonzero(owns & missed & listed)),
            "refused": int(np.count_nonzero(owns & missed & listed & ~kept))}
        self.beats = []
        for number in range(beats):
            lanes, answers = [], []
            for i in range(number * config.lanes, (number + 1) * config.lanes):
                back, lane = divmod(int(owner[i]), config.lanes) if joins[i] else (number, 0)
                lanes.append({
                    "present": int(self.present[i]), "status": int(status[i]),
                    "owner": int(owns[i]), "joins": int(joins[i]), "back": number - back,
                    "lane": lane, "sample": int(self.sample[i]), "amount": int(amount[i]),
                    "counted": int(counted[i]), "missed": int(owns[i] & missed[i]),
                    "listed": int(owns[i] & missed[i] & listed[i]), "kept": int(kept[i]),
                    "number": 0 if missed[i] and not listed[i] else int(answer[i])})
                answers.append(int(answer[i]) if not listed[i] else 0)
            self.beats.append({"carried": {
                "lanes": lanes, "counts": 1, "splits": splits,
                "last": int(number == beats - 1)}, "answers": answers})

    def expected(self):
        """(slot words or None per lane, marks and samples per lane, last) of each beat."""
        for number in range(len(self.beats) if self.splits else 0):
            lanes = slice(number * self.lanes, (number + 1) * self.lanes)
            there = self.present[lanes]
            yield ([int(slot) if here else None
                    for slot, here in zip(self.slots[lanes], there, strict=True)],
                   [(int(sample), int(mark)) if here else None for sample, mark, here in
                    zip(self.sample[lanes], self.marks[lanes], there, strict=True)],
                   number == len(self.beats) - 1)


def run(config, batches, gaps=STEADY, pauses=STEADY):
    dut = built(Ends, config)
    bench = StreamBench(dut)
    beats = [beat for batch in batches for beat in batch.beats]
    want = [beat for batch in batches for beat in batch.expected()]
    bench.source(dut.beats, beats, gaps)
    slots = bench.sink(dut.slots, len(want), pauses)
    marks = bench.sink(dut.marks, len(want), pauses[::-1])
    outcomes = bench.sink(dut.outcome, len(batches))
    cycles = bench.run(200 + 20 * len(beats))
    for number, (words, marked, (values, samples, last)) in enumerate(
            zip(slots, marks, want, strict=True)):
        for lane, (value, sample) in enumerate(zip(values, samples, strict=True)):
            where = f"beat {number}, lane {lane}"
            assert words.present >> lane & 1 == (value is not None), where
            if value is not None:
                assert words.values[lane] == value, where
                assert (marked.samples[lane], marked.marks >> lane & 1) == sample, where
            else:
                assert not marked.marks >> lane & 1, where
        assert (words.last, marked.last) == (last, last), f"beat {number}"
    for number, (got, batch) in enumerate(zip(outcomes, batches, strict=True)):
        assert {name: getattr(got, name) for name in COUNTS} == batch.counts, f"batch {number}"
    return cycles


@pytest.mark.parametrize("config, gaps, pauses", [
    pytest.param(config, gaps, pauses, id=f"{name}-{config.name}",
                 marks=() if name in ("steady", "both") and config.lanes <= 4
                 else pytest.mark.long)
    for name, gaps, pauses in (("steady", STEADY, STEADY), ("both", RAGGED, (0, 2, 0, 5)),
                               ("gaps", RAGGED, STEADY), ("pauses", STEADY, RAGGED))
    for config in CONFIGS])
def test_words_marks_and_counts(config, gaps, pauses):
    beats_of = (1, 30, 12, 1, 3, 22) if config.lanes <= 4 else (1, 12, 6, 1, 3)
    run(config, [Batch(config, beats, seed, splits=int(seed != 2))
                 for seed, beats in enumerate(beats_of)], gaps, pauses)


@pytest.mark.parametrize("op", [DirectoryOp.FIND, DirectoryOp.PLAN, DirectoryOp.MARK])
def test_operations_of_a_planner(op):
    """A planned batch has numbers of misses as slots, and no marks; a marked batch has neither."""
    config = dataclasses.replace(preset("tiny"), planner=True)
    batches = [Batch(config, beats, seed) for seed, beats in enumerate((1, 9, 4))]
    dut = built(Ends, config, op)
    bench = StreamBench(dut)
    bench.source(dut.beats, [beat for batch in batches for beat in batch.beats], RAGGED)
    want = [] if op is DirectoryOp.MARK else [
        beat for batch in batches for beat in batch.expected()]
    slots = bench.sink(dut.slots, len(want), RAGGED)
    marks = bench.sink(dut.marks, len(want) if op is DirectoryOp.FIND else 0)
    bench.sink(dut.outcome, len(batches))
    bench.run(600)
    flag = 0 if op is DirectoryOp.FIND else MISS_FLAG
    assert [[words.values[lane] if words.present >> lane & 1 else None
             for lane in range(config.lanes)] for words in slots] == [
        [value if value in (None, NO_SLOT) else value & ~flag for value in values]
        for values, _, _ in want]
    if op is DirectoryOp.FIND:
        assert any(marked.marks for marked in marks)


def test_a_beat_a_cycle():
    """But that a batch which ends right behind another waits a cycle."""
    batches = [Batch(TINY, beats, seed=beats) for beats in (40, 1, 25)]
    assert run(TINY, batches) == 66 + 1 + SlotWords.latency
