"""Unpacker, Packer and WidePacker against the bytes of NumPy arrays."""

from gc import collect
from math import ceil

import numpy as np
import pytest
from amaranth import signed
from hotrow_rtl.config import PRESETS
from hotrow_rtl.interfaces.records import row_entry
from hotrow_rtl.lists.unpacker_packer import Packer, Unpacker
from hotrow_rtl.lists.wide_packer import WidePacker, list_packer

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

PATTERNS = pytest.mark.parametrize(
    "gaps, pauses", [(STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED), (RAGGED, RAGGED)],
    ids=["steady", "gaps", "back-pressure", "both"])
GEOMETRIES = pytest.mark.parametrize(
    "preset, element_bytes", [("tiny", 2), ("tiny", 8), ("tiny", 16), ("alveo-u55c", 4)])


def words_of(values, element_bytes, bus_bytes, surplus_words=0):
    """The bus words that hold `values`, the rest of the last one filled with ones."""
    flat = b"".join(int(value).to_bytes(element_bytes, "little") for value in values)
    count = ceil(len(flat) / bus_bytes) + surplus_words
    flat = flat.ljust(count * bus_bytes, b"\xff")
    return [int.from_bytes(flat[i * bus_bytes:][:bus_bytes], "little") for i in range(count)]


def random_values(rng, count, element_bytes):
    return [int.from_bytes(rng.bytes(element_bytes), "little") for _ in range(count)]


def unpack(dut, lists, gaps, pauses):
    """Run lists of (word payloads, count) through an unpacker: (elements, cycles)."""
    bench = StreamBench(dut)
    bench.source(dut.start, [{"count": count} for _, count in lists], gaps)
    bench.source(dut.words, [word for words, _ in lists for word in words], gaps)
    total = sum(count for _, count in lists)
    elements = bench.sink(dut.elements, total, pauses, read=lambda payload: (
        payload.value if isinstance(payload.value, int) else payload.value.as_bits(),
        payload.fault, payload.last))

    async def over(ctx):  # ready for the next list, with no element or word inside
        await ctx.tick().until(dut.start.ready & ~dut.start.valid & ~dut.words.valid)
        await ctx.tick().repeat(2)
        while len(elements) < total:
            await ctx.tick()
    bench.process("return to idle", over)
    cycles = bench.run(40 * total + 200)
    return elements, cycles


@GEOMETRIES
@PATTERNS
def test_unpacker_gives_every_element(preset, element_bytes, gaps, pauses):
    config, rng = PRESETS[preset], np.random.default_rng(11)
    per_word = config.bus_bytes // element_bytes
    lists, expected = [], []
    for count, surplus in ((1, 0), (per_word, 0), (per_word + 1, 2), (3 * per_word, 1), (7, 0)):
        values = random_values(rng, count, element_bytes)
        words = words_of(values, element_bytes, config.bus_bytes, surplus)
        faults = rng.integers(0, 4, len(words)) * (rng.random(len(words)) < 0.3)
        lists.append(([{"data": word, "fault": int(fault), "last": i == len(words) - 1}
                       for i, (word, fault) in enumerate(zip(words, faults, strict=True))],
                      count))
        expected += [(value, int(faults[i // per_word]), i == count - 1)
                     for i, value in enumerate(values)]
    dut = built(Unpacker, config, 8 * element_bytes, element_bytes)
    elements, _ = unpack(dut, lists, gaps, pauses)
    assert elements == expected, "seed 11"
    assert any(fault for _, fault, _ in elements), "the words must carry faults"


def test_unpacker_rate_is_one_element_a_cycle():
    config, count = PRESETS["tiny"], 200
    words = [{"data": word, "fault": 0, "last": i == count // 4 - 1}
             for i, word in enumerate(words_of(range(count), 4, config.bus_bytes))]
    elements, cycles = unpack(built(Unpacker, config, 32, 4), [(words, count)], STEADY, STEADY)
    assert [value for value, _, _ in elements] == list(range(count))
    assert cycles <= count + Unpacker.latency + 6


def test_values_keep_their_shape():
    """Records keep their fields; a value narrower than its element is its low bits."""
    config = PRESETS["tiny"]
    entry = row_entry.const({"row": 0x12345678, "table": 9}).as_bits()
    word = {"data": entry, "fault": 0, "last": 1}
    elements, _ = unpack(built(Unpacker, config, row_entry, 8), [([word], 1)], STEADY, STEADY)
    assert elements == [(entry, 0, 1)]
    word = {"data": 0xFFFFFABC, "fault": 0, "last": 1}
    narrow, _ = unpack(built(Unpacker, config, 12, 4), [([word], 1)], STEADY, STEADY)
    assert narrow == [(0xABC, 0, 1)]


def pack(dut, elements, words, gaps, pauses):
    bench = StreamBench(dut)
    bench.source(dut.elements, elements, gaps)
    taken = bench.sink(dut.words, words, pauses, read=lambda payload: (
        payload.data, payload.strobe, payload.last))
    cycles = bench.run(40 * len(elements) + 200)
    return taken, cycles


def packed(values, element_bytes, bus_bytes, absent_end):
    """What a packer must write for one list: (data, strobe, last) by word."""
    per_word = bus_bytes // element_bytes
    count = len(values)
    words = []
    for first in range(0, count, per_word):
        part = values[first:first + per_word]
        words.append((words_of(part + [0] * (per_word - len(part)), element_bytes, bus_bytes)[0],
                      (1 << element_bytes * len(part)) - 1, 0))
    if absent_end and count % per_word == 0:
        words.append((0, 0, 0))
    return words[:-1] + [(*words[-1][:2], 1)]


@GEOMETRIES
@PATTERNS
@pytest.mark.parametrize("absent_end", [False, True], ids=["present", "absent"])
def test_packer_writes_every_element(preset, element_bytes, gaps, pauses, absent_end):
    config, rng = PRESETS[preset], np.random.default_rng(12)
    per_word = config.bus_bytes // element_bytes
    elements, expected = [], []
    for count in (*((0,) if absent_end else ()), 1, per_word, per_word + 1, 3 * per_word, 5):
        values = random_values(rng, count, element_bytes)
        elements += [{"value": value, "present": 1, "last": not absent_end and i == count - 1}
                     for i, value in enumerate(values)]
        elements += [{"value": 99, "present": 0, "last": 1}] * absent_end
        expected += packed(values, element_bytes, config.bus_bytes, absent_end)
    dut = built(Packer, config, 8 * element_bytes, element_bytes)
    words, _ = pack(dut, elements, len(expected), gaps, pauses)
    assert words == expected, "seed 12"


def test_packer_skips_absent_elements():
    elements = [{"value": value, "present": value != 2, "last": value == 5}
                for value in range(1, 6)]
    words, _ = pack(built(Packer, PRESETS["tiny"], 32, 4), elements, 1, STEADY, STEADY)
    assert words == [(0x5 << 96 | 0x4 << 64 | 0x3 << 32 | 0x1, 0xFFFF, 1)]


def test_packer_zero_fills_above_the_value():
    words, _ = pack(built(Packer, PRESETS["tiny"], signed(8), 4),
                    [{"value": -2, "present": 1, "last": 1}], 1, STEADY, STEADY)
    assert words == [(0xFE, 0xF, 1)]


def test_packer_rate_is_one_element_a_cycle():
    count = 200
    elements = [{"value": i, "present": 1, "last": i == count - 1} for i in range(count)]
    dut = built(Packer, PRESETS["tiny"], 32, 4)
    words, cycles = pack(dut, elements, count // 4, STEADY, STEADY)
    assert words == packed(list(range(count)), 4, 16, False)
    assert cycles <= count + Packer.latency + 2


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("unit", [Unpacker, Packer])
@pytest.mark.parametrize("shape, element_bytes, message", [
    (32, 3, "element_bytes must be a power of two up to 16, the bytes of a bus word, not 3"),
    (32, 32, "up to 16, the bytes of a bus word, not 32"),
    (32, 0, "not 0"),
    (33, 4, "a value of 33 bits does not fit an element of 4 bytes: expected 1 to 32 bits"),
])
def test_elements_that_do_not_fit_are_refused(unit, shape, element_bytes, message):
    with pytest.raises(ValueError, match=message):
        unit(PRESETS["tiny"], shape, element_bytes)
    collect()  # the refused component goes while its warning is filtered


@PATTERNS
@pytest.mark.parametrize("element_bytes", [16, 32])
@pytest.mark.parametrize("absent_end", [False, True], ids=["present", "absent"])
def test_long_elements_fill_several_words(element_bytes, gaps, pauses, absent_end):
    config, rng = PRESETS["ecp5"], np.random.default_rng(13)
    unit = list_packer(config, 8 * element_bytes - 5, element_bytes)
    assert isinstance(unit, WidePacker)
    elements, expected = [], []
    for count in (*((0,) if absent_end else ()), 1, 2, 5):
        values = [value >> 5 for value in random_values(rng, count, element_bytes)]
        for i, value in enumerate(values):
            elements += [{"value": 7, "present": 0, "last": 0}] * (i % 2)  # takes no place
            elements.append({"value": value, "present": 1,
                             "last": not absent_end and i == count - 1})
        elements += [{"value": 99, "present": 0, "last": 1}] * absent_end
        words = [(word, 0xFF, 0) for word in words_of(values, element_bytes, config.bus_bytes)]
        words += [(99, 0, 0)] * absent_end
        expected += words[:-1] + [(*words[-1][:2], 1)]
    words, cycles = pack(unit, elements, len(expected), gaps, pauses)
    assert words == expected, "seed 13"
    if gaps is STEADY and pauses is STEADY:  # one word a cycle, and one for what takes no place
        absent = sum(not element["present"] for element in elements)
        assert cycles <= len(expected) + absent + unit.latency + 2


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("shape, element_bytes, message", [
    (32, 8, "must be 8, the bytes of a bus word, times a power of two of at least 2, not 8: for "),
    (32, 24, "times a power of two of at least 2, not 24"),
    (32, 20, "times a power of two of at least 2, not 20"),
    (129, 16, "a value of 129 bits does not fit an element of 16 bytes: expected 1 to 128 bits"),
])
def test_long_elements_that_do_not_fit_are_refused(shape, element_bytes, message):
    with pytest.raises(ValueError, match=message):
        WidePacker(PRESETS["ecp5"], shape, element_bytes)
    assert WidePacker(PRESETS["ecp5"], 1, 16).words_per_element == 2, "one bit fits"
    collect()
