"""LaneUnpacker: every element of a list, in its lane."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.lists.lane_unpacker import LaneUnpacker

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
BUSES = {16: TINY, 64: replace(TINY, bus_bytes=64, counter_sets=256, directory_sets=256,
                               miss_entries=1024)}


def unpack(dut, lists, gaps, pauses):
    """Unpack lists of (values, words); return (elements of each lane, cycles)."""
    bench = StreamBench(dut)
    bench.source(dut.start, [{"count": len(values)} for values, _ in lists], gaps)
    bench.source(dut.words, [word for _, words in lists for word in words], gaps)
    lanes = []
    for lane, port in enumerate(dut.elements):
        count = sum(len(values[lane::dut.lanes]) for values, _ in lists)
        # Lanes stall in different cycles.
        own = pauses if pauses == STEADY else [*pauses[lane % len(pauses):], *pauses]
        lanes.append(bench.sink(port, count, own, name=f"lane {lane}",
                                read=lambda payload: (payload.value, payload.fault, payload.last)))
    return lanes, bench.run(4000)


def random_list(rng, count, per_word, width, surplus=0, faulty=()):
    """Values of one list, and its words with `surplus` words after them."""
    values = [int(value) for value in rng.integers(0, 1 << width, count, np.uint64)]
    words = []
    for at in range(0, count + surplus * per_word, per_word):
        padded = [*values[at:at + per_word], *[(1 << width) - 1] * per_word][:per_word]
        words.append({"data": sum(value << place * width for place, value in enumerate(padded)),
                      "fault": 2 if len(words) in faulty else 0, "last": 0})
    words[-1]["last"] = 1
    return values, words


@pytest.mark.parametrize("bus, element_bytes, lanes", [
    (16, 8, 2), (16, 4, 2), (16, 8, 4), (16, 8, 8), (16, 4, 8), (64, 8, 8), (64, 4, 4)])
@pytest.mark.parametrize("gaps, pauses", [
    (STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED), (RAGGED, RAGGED)],
    ids=["steady", "gaps", "back-pressure", "both"])
def test_every_element_reaches_its_lane(bus, element_bytes, lanes, gaps, pauses):
    rng, width = np.random.default_rng(7), 8 * element_bytes
    per_word = bus // element_bytes
    lists = [random_list(rng, count, per_word, width, surplus, faulty=(1,))
             for count, surplus in ((1, 0), (per_word + 1, 2), (lanes, 0), (37, 1), (5, 0))]
    dut = built(LaneUnpacker, BUSES[bus], width, element_bytes, lanes)
    got, _ = unpack(dut, lists, gaps, pauses)
    for lane in range(lanes):
        assert got[lane] == [
            (value, 2 * (at // per_word == 1), at == len(values) - 1)
            for values, _ in lists for at, value in enumerate(values) if at % lanes == lane]


@pytest.mark.parametrize("bus, element_bytes, lanes", [(16, 8, 2), (16, 8, 8), (16, 4, 2)])
def test_rate(bus, element_bytes, lanes):
    """As many elements a cycle as there are lanes, or elements in a word."""
    per_word = bus // element_bytes
    at_once = min(lanes, per_word)
    values = random_list(np.random.default_rng(1), 40 * at_once, per_word, 8 * element_bytes)
    dut = built(LaneUnpacker, BUSES[bus], 8 * element_bytes, element_bytes, lanes)
    _, cycles = unpack(dut, [values], STEADY, STEADY)
    assert cycles <= 40 + 2 + dut.latency


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("element_bytes, lanes", [(8, 3), (8, 1), (16, 2)])
def test_too_few_lanes_or_elements_are_refused(element_bytes, lanes):
    with pytest.raises(ValueError, match=r"at least 2 lanes.* use Unpacker"):
        LaneUnpacker(TINY, 8 * element_bytes, element_bytes, lanes)
