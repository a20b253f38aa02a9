"""Helpers on bits, against Python."""

import numpy as np
import pytest
from amaranth import Module, Signal
from amaranth.sim import Simulator
from hotrow_rtl.primitives.bits import prefix_popcount


@pytest.mark.parametrize("width", [1, 2, 5, 7, 8, 16])
def test_prefix_popcount(width):
    m, bits = Module(), Signal(width)
    before, total = prefix_popcount(m, bits)
    assert len(before) == width and len(total) == width.bit_length()
    counts = [Signal(8, name=f"count{place}") for place in range(width + 1)]
    m.d.comb += [count.eq(value) for count, value in zip(counts, [*before, total], strict=True)]

    async def play(ctx):
        for value in np.random.default_rng(width).permutation(1 << width)[:256]:
            ctx.set(bits, int(value))
            assert [ctx.get(count) for count in counts] == [
                (int(value) & (1 << place) - 1).bit_count() for place in range(width + 1)]
    simulator = Simulator(m)
    simulator.add_testbench(play)
    simulator.run()
