"""Sums of lists of lengths, one list after the other, against NumPy."""

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.lookup.reader.length_sum import LENGTH_BYTES, LengthSum

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
PER_WORD = TINY.bus_bytes // LENGTH_BYTES


@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, RAGGED)],
                         ids=["steady", "ragged"])
def test_lists_one_after_the_other(gaps, pauses):
    """The next list waits at `start` while one is summed; what a word holds beyond does not count.
    """
    rng, dut = np.random.default_rng(3), built(LengthSum, TINY)
    counts = [1, PER_WORD, PER_WORD + 1, 3 * PER_WORD, 2, 5 * PER_WORD - 1]
    starts, words, wanted = [], [], []
    for number, count in enumerate(counts):
        lengths = rng.integers(0, 1 << 16, -(-count // PER_WORD) * PER_WORD, np.uint16)
        fault = number % 2
        starts.append({"count": count})
        wanted.append((int(lengths[:count].sum(dtype=np.uint64)), fault))
        words += [{"data": int.from_bytes(word.tobytes(), "little"), "fault": fault}
                  for word in lengths.reshape(-1, PER_WORD)]
    bench = StreamBench(dut)
    bench.source(dut.start, starts)
    bench.source(dut.words, words, gaps)
    found = bench.sink(dut.total, len(counts), pauses, read=lambda total: (total.sum, total.fault))
    bench.run(1000)
    assert found == wanted, "seed 3"
