"""LanePacker against a packer in plain Python."""

import dataclasses
from gc import collect

import numpy as np
import pytest
from amaranth import Module, ResetInserter, signed
from amaranth.lib import wiring
from hotrow_rtl.config import preset
from hotrow_rtl.interfaces.records import row_entry
from hotrow_rtl.lists.lane_packer import LanePacker
from hotrow_rtl.lists.unpacker_packer import Packer

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
WIDE = dataclasses.replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256,
                           directory_sets=256, miss_entries=1024)
ONE = dataclasses.replace(TINY, name="one-lane", lookup_lanes=1, lane_banks=1)
CONFIGS = pytest.mark.parametrize("config", [TINY, WIDE, ONE], ids=lambda config: config.name)
SIZES = pytest.mark.parametrize("element_bytes, words", [(4, 1), (8, 1), (8, 2)],
                                ids=["4", "8", "8-double"])  # a word has several bus words


def beat(config, values, last=0):
    """A payload; a value is None for an absent lane, which gets data that must not be written."""
    lanes = [0xDEAD if value is None else value for value in values]
    present = sum(1 << lane for lane, value in enumerate(values) if value is not None)
    return {"values": lanes + [0xBEEF] * (config.lanes - len(lanes)), "present": present,
            "last": int(last)}


def random_list(config, rng, beats, width, fill):
    """One list; a lane is present with probability `fill`, or with one that varies by beat."""
    payloads = []
    for number in range(beats):
        chance = fill if fill is not None else rng.choice([0.0, 0.3, 1.0])
        present = rng.random(config.lanes) < chance
        payloads.append(beat(config, [int.from_bytes(rng.bytes(8), "little") % (1 << width)
                                  if bit else None for bit in present], number == beats - 1))
    return payloads


def packed(config, element_bytes, bus_words, beats):
    """(data, strobe, last) of every word of the lists."""
    per_word = bus_words * config.bus_bytes // element_bytes
    words, pending = [], []

    def send(elements, last):
        data = sum(value << 8 * element_bytes * place for place, value in enumerate(elements))
        words.append((data, (1 << element_bytes * len(elements)) - 1, int(last)))

    for payload in beats:
        pending += [payload["values"][lane] for lane in range(config.lanes)
                    if payload["present"] >> lane & 1]
        while len(pending) > per_word or (len(pending) == per_word and not payload["last"]):
            send(pending[:per_word], 0)
            pending = pending[per_word:]
        if payload["last"]:
            send(pending, 1)
            pending = []
    return words


def written(word):
    """The bytes of a word that are written, its strobes and `last`."""
    mask = sum(0xff << 8 * at for at in range(word.strobe.bit_length()) if word.strobe >> at & 1)
    return word.data & mask, word.strobe, word.last


def run(config, element_bytes, beats, gaps=STEADY, pauses=STEADY, shape=None, words=1):
    """Check every word; return the number of cycles."""
    dut = built(LanePacker, config, shape or min(8 * element_bytes, 44), element_bytes,
                     words * config.bus_bytes)
    bench = StreamBench(dut)
    want = packed(config, element_bytes, words, beats)
    bench.source(dut.elements, beats, gaps)
    taken = bench.sink(dut.words, len(want), pauses,
                       read=written)
    surplus = []

    async def watch(ctx):  # no further word
        while len(taken) < len(want):
            await ctx.tick()
        for _ in range(8):
            await ctx.tick()
            surplus.append(ctx.get(dut.words.valid))
    bench.process("no further word", watch)
    cycles = bench.run(100 + 16 * (len(beats) + len(want)))
    for number, (got, wanted) in enumerate(zip(taken, want, strict=True)):
        assert got == wanted, f"word {number}"
    assert not any(surplus)
    return cycles - 8


def latency(config):
    return LanePacker.latency if config.lanes > 1 else Packer.latency


def lists(config, element_bytes, seed, count, longest):
    rng = np.random.default_rng(seed)
    width = min(8 * element_bytes, 44)
    return [payload for _ in range(count) for payload in random_list(
        config, rng, int(rng.integers(1, longest + 1)), width, rng.choice([None, 0.2, 0.7, 1]))]


@CONFIGS
@SIZES
@pytest.mark.parametrize("gaps", [STEADY, RAGGED], ids=["", "gaps"])
@pytest.mark.parametrize("pauses", [STEADY, RAGGED], ids=["", "pauses"])
def test_writes_every_element(config, element_bytes, words, gaps, pauses):
    for seed, count, longest in ((1, 30, 4), (2, 6, 20)):
        run(config, element_bytes, lists(config, element_bytes, seed, count, longest),
            gaps, pauses, words=words)


@pytest.mark.parametrize("element_bytes, words", [(4, 1), (8, 1), (16, 1), (8, 2), (16, 2)])
@pytest.mark.parametrize("pauses", [STEADY, RAGGED], ids=["", "pauses"])
def test_every_pattern_after_every_other(element_bytes, words, pauses):
    """All pairs of patterns, in one list and as ends of lists."""
    patterns = range(1 << TINY.lanes)
    beats = []
    for first in patterns:
        for second in patterns:
            for pattern, last in ((first, second % 3 == 0), (second, second % 3 != 2)):
                beats.append(beat(TINY, [100 + lane if pattern >> lane & 1 else None
                                         for lane in range(TINY.lanes)], last))
    run(TINY, element_bytes, beats + [beat(TINY, [], 1)], pauses=pauses, shape=8, words=words)


@pytest.mark.slow
@CONFIGS
@SIZES
@pytest.mark.parametrize("seed", range(10, 14))
def test_long_lists(config, element_bytes, words, seed):
    rng = np.random.default_rng(seed)
    gaps, pauses = ([int(gap) for gap in rng.choice([0, 0, 0, 0, 1, 5], 97)] for _ in range(2))
    count = 50 if config.lanes > 4 else 150
    run(config, element_bytes, lists(config, element_bytes, seed, count, 12), gaps, pauses,
        words=words)


@CONFIGS
@pytest.mark.parametrize("element_bytes, words", [(4, 1), (8, 2)])
@pytest.mark.parametrize("fill", [None, 0.0, 0.6, 1.0])
def test_a_beat_every_cycle(config, element_bytes, words, fill):
    """If a full beat fills a word, the rate depends neither on the beats nor on the lists."""
    rng = np.random.default_rng(3)
    beats = [payload for size in (1, 1, 2, 1, 3, 2, 2, 40, 1, 9)
             for payload in random_list(config, rng, size, 32, fill)]
    expected = len(beats) + latency(config)
    used = run(config, element_bytes, beats, words=words)
    assert used in (expected, expected + 1)  # the final beat may complete two words


@CONFIGS
def test_a_word_every_cycle(config):
    """Elements of 8 bytes in bus words: a full beat every second cycle, others at the rate of their
    words."""
    half = config.lanes // 2
    cases = ((config.lanes, 2 * 50), (half, 50), (half - 1, 50), (1, 50),
             (half + 1, 50 * (half + 1) / half)) if half else ((1, 50),)
    for filled, cycles in cases:
        beats = [beat(config, list(range(filled)), number == 49) for number in range(50)]
        used = run(config, 8, beats) - latency(config)
        assert cycles <= used <= cycles + 2, f"{filled} elements a beat"


def test_stalled_words_stall_the_pipeline():
    """All stages stall, empty ones included."""
    dut = built(LanePacker, TINY, 32, 4)
    bench = StreamBench(dut)
    taken = []

    async def drive(ctx):
        ctx.set(dut.elements.p, beat(TINY, range(TINY.lanes)))
        for cycle in range(40):
            ctx.set(dut.elements.valid, cycle % 3 == 0)
            taken.append(cycle % 3 == 0 and ctx.get(dut.elements.ready))
            await ctx.tick()
    bench.process("drive", drive)
    bench.run(50)
    assert sum(taken) == 4  # output word, ring, and both entries of the skid buffer


class Restartable(wiring.Component):
    """A packer with the reset of the unit that contains it."""

    def __init__(self, config, element_bytes, words):
        self.packer = LanePacker(config, 32, element_bytes, words * config.bus_bytes)
        super().__init__({**self.packer.signature.members, "restart": wiring.In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.packer = ResetInserter(self.restart)(self.packer)
        wiring.connect(m, wiring.flipped(self.elements), self.packer.elements)
        wiring.connect(m, self.packer.words, wiring.flipped(self.words))
        return m


@SIZES
@pytest.mark.parametrize("taking", [0, 1])
@pytest.mark.parametrize("after", range(1, 9))
def test_restart(element_bytes, words, taking, after):
    """After a restart the next list is written from its first element."""
    dut = built(Restartable, TINY, element_bytes, words)
    bench = StreamBench(dut)
    rng = np.random.default_rng(after)
    dropped = random_list(TINY, rng, 9, 32, None)
    kept = random_list(TINY, rng, 5, 32, 0.5) + random_list(TINY, rng, 3, 32, 1.0)
    want, taken, restarted = packed(TINY, element_bytes, words, kept), [], []

    async def drive(ctx):
        ctx.set(dut.words.ready, taking)
        for number in range(after):
            ctx.set(dut.elements.p, dropped[number])
            ctx.set(dut.elements.valid, 1)
            await ctx.tick()
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        assert not ctx.get(dut.words.valid)
        restarted.append(True)
        for given in kept:
            ctx.set(dut.elements.p, given)
            await ctx.tick().until(dut.elements.ready)
        ctx.set(dut.elements.valid, 0)

    async def take(ctx):
        while not restarted:
            await ctx.tick()
        ctx.set(dut.words.ready, 1)
        while len(taken) < len(want):
            word, = await ctx.tick().sample(dut.words.p).until(dut.words.valid)
            taken.append(written(word))
    bench.process("drive", drive)
    bench.process("take", take)
    bench.run(100)
    assert taken == want


@pytest.mark.parametrize("shape, value, bits", [
    (signed(8), -2, 0xFE), (row_entry, {"row": 0x12345678, "table": 9}, None)])
def test_shapes(shape, value, bits):
    if bits is None:
        bits = row_entry.const(value).as_bits()
    dut = built(LanePacker, TINY, shape, 8)
    bench = StreamBench(dut)
    absent = 0 if shape == signed(8) else {"row": 5, "table": 5}
    bench.source(dut.elements, [{"values": [absent, value, absent, absent], "present": 0b10,
                                 "last": 1}])
    taken = bench.sink(dut.words, 1, read=written)
    bench.run(20)
    assert taken == [(bits, 0xFF, 1)]


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("shape, element_bytes, word_bytes, message", [
    (16, 2, None, "4 elements of 2 bytes must fill a word: .* a power of two from 2 to 8, not 16"),
    (32, 4, 32, "a power of two from 4 to 16, not 32"),
    (32, 8, 24, "a power of two from 8 to 32, not 24"),
    (32, 8, 4, "a power of two from 8 to 32, not 4"),
    (33, 4, None, "a value of 33 bits does not fit an element of 4 bytes"),
    (32, 12, None, "element_bytes must be a power of two"),
])
def test_elements_that_do_not_fit_are_refused(shape, element_bytes, word_bytes, message):
    with pytest.raises(ValueError, match=message):
        LanePacker(TINY, shape, element_bytes, word_bytes)
    collect()  # the component's warning is filtered only inside this test
