"""ColdSampleBitmap against NumPy: lists and numbers of popular samples; rate, latency, memory."""

import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.lookup.splitter.cold_sample_bitmap import ColdSampleBitmap

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
WIDE = dataclasses.replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256,
                           directory_sets=256, miss_entries=1024)
LEAST = dataclasses.replace(WIDE, name="least", batch_samples=64)
ONE = dataclasses.replace(TINY, name="one-lane", lookup_lanes=1, lane_banks=1)
CONFIGS = pytest.mark.parametrize("config", [TINY, WIDE], ids=lambda config: config.name)


def write_rounds(samples, marks, config):
    """Cycles of one beat: the larger number of its even and its odd marked words.

    Parameters
    ----------
    samples : int[lanes]
    marks : bool[lanes]
    """
    words = np.unique(np.asarray(samples)[np.asarray(marks, bool)] // config.lanes)
    odd = int(np.count_nonzero(words & 1))
    return max(1, odd, len(words) - odd)


def listing_cycles(samples, config):
    """From the last beat of a batch to the end of both sample lists, without stalls.

    The lists end later by the write rounds beyond one of each beat, and start no earlier than the
    lists of the batch before end.
    """
    return -(-samples // config.lanes) + ColdSampleBitmap.latency


def batch(config, size, samples, cold):
    """(number of samples, beats) of the lookups of those samples in order.

    `cold` tells which lookups mark; lanes left over in the last beat carry marks of nothing.
    """
    beats = []
    for first in range(0, len(samples), config.lanes):
        part = slice(first, first + config.lanes)
        here = [int(sample) for sample in samples[part]]
        beats.append({
            "samples": here + [0] * (config.lanes - len(here)),
            "marks": sum(1 << lane for lane, mark in enumerate(cold[part]) if mark),
            "last": int(first + config.lanes >= len(samples)),
        })
    return size, beats


def sample_major(size, per_sample):
    return np.repeat(np.arange(size), per_sample)


def feature_major(size, features):
    return np.tile(np.arange(size), features)


def jagged(rng, size):
    """Samples without a lookup and with many."""
    return np.repeat(np.arange(size), rng.integers(0, 4, size))


def any_order(rng, size):
    return rng.integers(0, size, 2 * size)


def batches_of_every_kind(config, seed, sizes, cold=None):
    rng = np.random.default_rng(seed)
    for number, size in enumerate(sizes):
        samples = [sample_major(size, 1), feature_major(size, 3), jagged(rng, size),
                   any_order(rng, size), sample_major(size, 5)][number % 5]
        if not len(samples):
            samples = np.array([0])
        chance = cold if cold is not None else rng.choice([0, 0.02, 0.3, 1])
        yield batch(config, size, samples, rng.random(len(samples)) < chance)


def expected(batches):
    """(popular, nonpopular) of every batch."""
    for size, beats in batches:
        cold = np.zeros(size, bool)
        for beat in beats:
            for lane, sample in enumerate(beat["samples"]):
                if beat["marks"] >> lane & 1:
                    cold[sample] = True
        yield np.flatnonzero(~cold).tolist(), np.flatnonzero(cold).tolist()


class Bench:
    """A unit with its batches on their way; `run` returns what left of each."""

    def __init__(self, config, gaps=STEADY, pauses=STEADY, late=0):
        self.config, self.gaps, self.pauses, self.late = config, gaps, pauses, late
        self.dut = built(ColdSampleBitmap, config)
        self.bench = StreamBench(self.dut)
        self.lists = {"popular": [], "nonpopular": []}
        self.entered, self.ended = [], {"popular": [], "nonpopular": []}

    async def feed(self, ctx, beats, gaps, early=False):
        """Offer beats, noting when each was taken; `early` while the memory is being cleared."""
        if not early:
            await ctx.tick().until(self.dut.ready)
        for number, beat in enumerate(beats):
            for _ in range(gaps[number % len(gaps)]):
                await ctx.tick()
            ctx.set(self.dut.beats.p, beat)
            ctx.set(self.dut.beats.valid, 1)
            await ctx.tick().until(self.dut.beats.ready)
            self.entered.append((self.bench.cycles, beat["last"]))
            ctx.set(self.dut.beats.valid, 0)

    async def size(self, ctx, sizes):
        for size in sizes:
            for _ in range(self.late):
                await ctx.tick()
            ctx.set(self.dut.batches.p.samples, size)
            ctx.set(self.dut.batches.valid, 1)
            await ctx.tick().until(self.dut.batches.ready)
            ctx.set(self.dut.batches.valid, 0)

    async def take(self, ctx, name, count, pauses):
        out = getattr(self.dut, name)
        stored, current = self.lists[name], []
        turn = held = 0
        while len(stored) < count:
            ready = pauses[turn % len(pauses)] == 0
            ctx.set(out.ready, ready)
            _, _, valid, beat = await ctx.tick().sample(out.valid, out.p)
            assert not held or (valid and beat.as_bits() == held), f"{name} changed while waiting"
            held = beat.as_bits() if valid and not ready else 0
            turn += 1
            if valid and ready:
                assert beat.present or beat.last
                current += [beat.values[lane] for lane in range(self.config.lanes)
                            if beat.present >> lane & 1]
                if beat.last:
                    stored.append(current)
                    self.ended[name].append(self.bench.cycles)
                    current = []
        ctx.set(out.ready, 0)

    async def restart(self, ctx, batches, taking, after):
        """Offer batches and take the outputs `taking` for `after` cycles, then restart."""
        dut = self.dut
        await ctx.tick().until(dut.ready)
        beats = [beat for _, given in batches for beat in given]
        sizes = [size for size, _ in batches]
        for name in taking:
            ctx.set(getattr(dut, name).ready, 1)
        for _ in range(after):
            ctx.set(dut.batches.valid, bool(sizes))
            ctx.set(dut.batches.p.samples, sizes[0] if sizes else 0)
            ctx.set(dut.beats.valid, bool(beats))
            ctx.set(dut.beats.p, beats[0] if beats else {})
            ready, wanted = ctx.get(dut.beats.ready), ctx.get(dut.batches.ready)
            await ctx.tick()
            beats, sizes = beats[bool(ready):], sizes[bool(wanted):]
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        ctx.set(dut.beats.valid, 0)
        ctx.set(dut.batches.valid, 0)
        assert not any(ctx.get(getattr(dut, name).valid) for name in (*self.lists, "counted"))
        assert not ctx.get(dut.ready)

    def collect(self, count):
        """Take the lists of so many batches, and how many samples were popular."""
        for shift, name in enumerate(self.lists):
            pauses = self.pauses[shift:] + self.pauses[:shift]
            self.bench.process(name, lambda ctx, name=name, pauses=pauses: self.take(
                ctx, name, count, pauses))
        pauses = [7 * pause for pause in self.pauses]
        self.counted = self.bench.sink(self.dut.counted, count, pauses, name="counted",
                                       read=lambda payload: payload.popular)

    def run(self, batches, limit=None):
        self.bench.process("sizes", lambda ctx: self.size(ctx, [size for size, _ in batches]))
        beats = [beat for _, given in batches for beat in given]
        self.bench.process("beats", lambda ctx: self.feed(ctx, beats, self.gaps))
        self.collect(len(batches))
        words = sum(size for size, _ in batches) // self.config.lanes + len(batches)
        self.bench.run(limit or 2000 + 40 * (len(beats) + words) + self.late * len(batches))
        self.check(batches)
        return self

    def check(self, batches):
        for number, (popular, nonpopular) in enumerate(expected(batches)):
            assert self.lists["popular"][number] == popular, f"popular, {number=}"
            assert self.lists["nonpopular"][number] == nonpopular, f"nonpopular, {number=}"
            assert self.counted[number] == len(popular), f"counted, {number=}"


SIZES = [1, 1, 1, 2, 3, 5, 17, 64, 40, 33, 16, 1, 4, 63, 7, 50, 8, 21, 60, 1]
SLOW_TAKER = (0, 1, 0, 0, 1, 1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, WIDE, LEAST, ONE], ids=lambda config: config.name)
@pytest.mark.parametrize("gaps, pauses, late", [
    pytest.param(STEADY, STEADY, 0, id="steady"),
    pytest.param(RAGGED, SLOW_TAKER, 0, id="both"),
    pytest.param(STEADY, STEADY, 23, id="sizes late", marks=pytest.mark.long),
    pytest.param(RAGGED, STEADY, 0, id="gaps", marks=pytest.mark.long),
    pytest.param(STEADY, SLOW_TAKER, 0, id="pauses", marks=pytest.mark.long)])
def test_lists_of_every_kind_of_batch(config, gaps, pauses, late):
    for seed in range(2):
        sizes = np.random.default_rng(seed).permutation(SIZES).tolist()
        Bench(config, gaps, pauses, late).run(list(batches_of_every_kind(config, seed, sizes)))


@pytest.mark.parametrize("config", [TINY, LEAST], ids=lambda config: config.name)
@pytest.mark.parametrize("cold", [0, 1])
def test_all_popular_and_none(config, cold):
    Bench(config).run(list(batches_of_every_kind(config, 5, SIZES, cold)))


@CONFIGS
def test_one_sample_batches(config):
    """Batches shorter than the way through the unit, warm and cold in turn."""
    batches = [batch(config, 1, [0], [number % 3 == 0]) for number in range(60)]
    bench = Bench(config).run(batches)
    assert bench.bench.cycles < 60 * 10 + config.batch_samples


@pytest.mark.parametrize("config", [TINY, WIDE], ids=lambda config: config.name)
def test_same_words_again_and_again(config):
    """Beats one to three apart mark other samples of the same words."""
    rng = np.random.default_rng(8)
    samples = rng.integers(0, 4 * config.lanes, 60 * config.lanes)
    few = rng.random(len(samples)) < 1 / config.lanes
    order = np.concatenate([np.sort(part) for part in np.split(samples, 60)])
    Bench(config).run([batch(config, 4 * config.lanes, part, few[:len(part)])
                       for part in np.split(order, 12)])


@pytest.mark.long
@CONFIGS
@pytest.mark.parametrize("seed", range(20, 23))
def test_at_length(config, seed):
    rng = np.random.default_rng(seed)
    sizes = [int(size) for size in rng.choice([1, 3, 60, 250, 700, config.batch_samples], 20)]
    gaps, pauses = ([int(gap) for gap in rng.choice([0, 0, 0, 0, 1, 9], 97)] for _ in range(2))
    Bench(config, gaps, pauses).run(list(batches_of_every_kind(config, seed, sizes)))


@pytest.mark.slow
@CONFIGS
@pytest.mark.parametrize("order", [sample_major, feature_major])
def test_largest_batches(config, order):
    rng = np.random.default_rng(9)
    size = config.batch_samples
    samples = order(size, 2)
    Bench(config).run([batch(config, size, samples, rng.random(len(samples)) < chance)
                       for chance in (1, 0.2, 0, 0.01)])


@CONFIGS
def test_full_rate_from_batch_to_batch(config):
    """One lookup per sample, the hardest: as many words to list as there are beats."""
    count, size = 4, 512
    rng = np.random.default_rng(10)
    bench = Bench(config).run([batch(config, size, sample_major(size, 1), rng.random(size) < 0.5)
                               for _ in range(count)])
    beats = count * size // config.lanes
    cycles = bench.entered[-1][0] - bench.entered[0][0] + 1
    assert beats / cycles >= 0.95, f"{beats} beats in {cycles} cycles"


def rounds_of(beat, config):
    marks = [beat["marks"] >> lane & 1 for lane in range(config.lanes)]
    return write_rounds(beat["samples"], marks, config)


@CONFIGS
@pytest.mark.parametrize("size", [1, 17, 100, *(pytest.param(size, marks=pytest.mark.slow)
                                                for size in (16, 999))])
def test_cycles(config, size):
    """From the first beat, all of them offered without a gap."""
    rng = np.random.default_rng(size)
    for samples in (sample_major(size, 3), feature_major(size, 2), any_order(rng, size)):
        given = batch(config, size, samples, rng.random(len(samples)) < 0.7)
        bench = Bench(config).run([given])
        rounds = sum(rounds_of(beat, config) for beat in given[1])
        for ends in bench.ended.values():
            assert ends[0] - bench.entered[0][0] == rounds - 1 + listing_cycles(size, config)


@CONFIGS
def test_rounds_of_a_beat(config):
    """A run of `lanes` samples from anywhere takes one cycle; others what the model says."""
    rng = np.random.default_rng(11)
    lanes, size = config.lanes, config.batch_samples
    every = np.ones(lanes, bool)
    beats = [(np.arange(lanes) + first, every) for first in range(0, size - lanes, 2 * lanes - 1)]
    runs = len(beats)
    beats += [(rng.integers(0, size, lanes), rng.random(lanes) < 0.6) for _ in range(60)]
    beats += [((size - 5 + np.arange(lanes)) % size, every)]
    beats += [(np.arange(lanes) * lanes, every), (np.arange(lanes) * 2 * lanes, every)] * 2
    beats += [(np.arange(lanes), every)] * 3
    given = size, [{
        "samples": samples.tolist(), "marks": sum(1 << int(lane) for lane in np.flatnonzero(marks)),
        "last": int(number == len(beats) - 1)} for number, (samples, marks) in enumerate(beats)]
    taken = [cycle for cycle, _ in Bench(config).run([given]).entered]
    rounds = [rounds_of(beat, config) for beat in given[1]]
    assert rounds[:runs] == [1] * runs and rounds[-5:-3] == [lanes // 2, lanes]
    assert taken[-1] - taken[0] == sum(rounds[:-4]) + 3  # beats wait in three places before theirs
