import random

import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.lookup.reader.bag_end_prefix_sum import BagEndPrefixSum
from hotrow_rtl.lookup.reader.batch_descriptor import LENGTH_WIDTH, chunk_bags

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
BAGS = chunk_bags(TINY)


def batches(draw):
    """(chunks, `chunk_ends` fields of each) of batches with short, long and faulty lengths."""
    for number in range(12):
        wide, offset, count = number % 2, 0, draw.randrange(1, 6)
        per_word = TINY.lanes // 2 if wide else TINY.lanes
        for chunk in range(count):
            final, fault = int(chunk == count - 1), draw.choice([0, 0, 0, 2])
            lengths = [draw.choice([0, 1, draw.randrange(4), draw.randrange(1 << LENGTH_WIDTH)])
                       for _ in range(BAGS)]
            last_bag = draw.randrange(BAGS)
            ends, bags = offset, []
            for bag, length in enumerate(lengths):
                ends += length
                words, lane = divmod(ends, per_word)
                is_open = bool(fault or (final and last_bag <= bag))
                bags.append((words, words > 0, words == 1, (1 << lane) - 1, is_open))
            offset = 0 if final else ends % per_word
            packed = sum(length << LENGTH_WIDTH * bag for bag, length in enumerate(lengths))
            yield {"lengths": packed, "fault": fault, "final": final, "last_bag": last_bag,
                   "wide": wide}, (bags, fault, final)


@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, RAGGED)],
                         ids=["steady", "ragged"])
def test_ends(gaps, pauses):
    chunks, wanted = zip(*batches(random.Random(5)), strict=True)
    dut = built(BagEndPrefixSum, TINY)
    bench = StreamBench(dut)
    bench.source(dut.chunks, chunks, gaps)
    taken = bench.sink(dut.ends, len(chunks), pauses, read=lambda p: (
        [(bag.words, bool(bag.later), bool(bag.next), bag.past, bool(bag.open)) for bag in p.ends],
        p.fault, p.final))
    bench.run(500)
    assert taken == list(wanted)
