"""Numbers of set bits, against Python."""

import pytest
from amaranth import Module, Signal
from amaranth.sim import Simulator
from hotrow_rtl.primitives.bits import popcount, prefix_popcount


@pytest.mark.parametrize("width", [1, 2, 3, 5, 6, 7, 12, 13])
def test_counts_of_all_values(width):
    m, bits = Module(), Signal(width)
    total, all_set = Signal(8), Signal(8)
    below = [Signal(8, name=f"below{bit}") for bit in range(width)]
    counts, number = prefix_popcount(bits)
    m.d.comb += [total.eq(popcount(bits)), all_set.eq(number),
                 *(one.eq(count) for one, count in zip(below, counts, strict=True))]

    async def check(ctx):
        for value in range(1 << width):
            ctx.set(bits, value)
            got = [ctx.get(each) for each in (total, all_set, *below)]
            assert got == [value.bit_count()] * 2 + [
                (value & (1 << bit) - 1).bit_count() for bit in range(width)]
    simulator = Simulator(m)
    simulator.add_testbench(check)
    simulator.run()
