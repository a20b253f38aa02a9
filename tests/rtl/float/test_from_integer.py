"""IntegerToFloat against NumPy."""

import numpy as np
import pytest
from hotrow_rtl.float.from_integer import IntegerToFloat

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

OPERANDS = np.unique([0, *(1 << place for place in range(24)),
                      *((1 << place) - 1 for place in range(1, 25)), 0x555555, 0xAAAAAA])


@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, RAGGED)])
def test_every_exponent(gaps, pauses):
    bench = StreamBench(dut := built(IntegerToFloat))
    bench.source(dut.operands, OPERANDS.tolist(), gaps)
    results = bench.sink(dut.results, len(OPERANDS), pauses)
    cycles = bench.run(3000)
    assert results == OPERANDS.astype(np.float32).view(np.uint32).tolist()
    if gaps is STEADY:
        assert cycles == sum(max(1, int(n).bit_length()) + 1 for n in OPERANDS)
