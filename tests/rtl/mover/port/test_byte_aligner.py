from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.mover.port.alignment import TransferAlignment
from hotrow_rtl.mover.port.byte_aligner import ByteAligner

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

CONFIGS = {16: preset("tiny"), 64: replace(
    preset("tiny"), bus_bytes=64, counter_sets=256, directory_sets=256, miss_entries=1024)}
PAGE = 4096


def cases(config):
    """(first source lane, first destination lane, lanes): every one on a narrow bus; on a wide
    one every pair of lanes with sizes around one and two words."""
    lanes = config.lanes
    sizes = range(1, 3 * lanes + 2) if lanes == 4 else (1, 4, lanes, lanes + 3, 2 * lanes)
    step = 1 if lanes == 4 else 3
    return list(product(range(0, lanes, step), range(0, lanes, step), sizes))


def placements(config, copies):
    """What TransferAlignment says of copies that start at those lanes, near a page's end."""
    dut = built(TransferAlignment, config)
    bench = StreamBench(dut)
    bench.source(dut.transfers, [
        {"source": PAGE - config.bus_bytes + 4 * first, "destination": PAGE + 4 * begin,
         "info": {"bytes": 4 * lanes}} for first, begin, lanes in copies])
    placed = bench.sink(dut.aligned, len(copies))
    bench.run(len(copies) + 4)
    return [transfer.alignment.as_bits() for transfer in placed]


def realign(config, copies, gaps, pauses):
    """Move random bytes; return source bytes, destination (strobes, bytes), and the cycles."""
    rng = np.random.default_rng(1)
    sources, words, count = [], [], 0
    dut = built(ByteAligner, config)
    layout = dut.words.payload.shape()
    for (first, begin, lanes), placement in zip(
            copies, placements(config, copies), strict=True):
        octets = rng.integers(0, 256, -(-(first + lanes) // config.lanes) * config.bus_bytes,
                              np.uint8)
        sources.append(octets[4 * first:4 * (first + lanes)])
        split = octets.reshape(-1, config.bus_bytes)
        for place, word in enumerate(split):
            words.append(layout.const({
                "data": int.from_bytes(word.tobytes(), "little"), "first": place == 0,
                "alignment": layout.members["alignment"].from_bits(placement),
                "last": place == len(split) - 1}))
        count += -(-(begin + lanes) // config.lanes)
    bench = StreamBench(dut)
    bench.source(dut.words, words, gaps)
    aligned = bench.sink(dut.aligned, count, pauses)
    return sources, aligned, bench.run(40 * count)


@pytest.mark.parametrize("bus_bytes, gaps, pauses", [
    (16, RAGGED, RAGGED), pytest.param(64, RAGGED, STEADY, marks=pytest.mark.slow), *(
        pytest.param(*each, marks=pytest.mark.long) for each in (
            (16, STEADY, STEADY), (16, STEADY, RAGGED), (64, STEADY, STEADY),
            (64, STEADY, RAGGED)))])
def test_every_shift(bus_bytes, gaps, pauses):
    config = CONFIGS[bus_bytes]
    copies = cases(config)
    sources, aligned, _ = realign(config, copies, gaps, pauses)
    words = iter(aligned)
    for copy, source in zip(copies, sources, strict=True):
        _, begin, lanes = copy
        strobes, octets = [], b""
        for _ in range(-(-(begin + lanes) // config.lanes)):
            word = next(words)
            strobes += [word.strobe >> i & 1 for i in range(bus_bytes)]
            octets += word.data.to_bytes(bus_bytes, "little")
        here = range(4 * begin, 4 * (begin + lanes))
        assert strobes == [place in here for place in range(len(strobes))], copy
        assert octets[here.start:here.stop] == source.tobytes(), copy


@pytest.mark.parametrize("first, begin, lanes, cycles", [
    (0, 0, 4, 1), (1, 1, 3, 1), (0, 0, 8, 2), (2, 0, 4, 2), (0, 2, 4, 2), (3, 1, 8, 4),
    (1, 3, 8, 3)])
def test_cycles_of_a_copy(first, begin, lanes, cycles):
    """max(source words, destination words), one more as the docstring says."""
    _, _, used = realign(CONFIGS[16], [(first, begin, lanes)] * 20, STEADY, STEADY)
    assert 20 * cycles <= used <= 20 * cycles + ByteAligner.latency + 1
