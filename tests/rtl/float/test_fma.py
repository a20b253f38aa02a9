"""FusedMultiplyAdd against its golden model."""

import numpy as np
import pytest
from hotrow_rtl.float.fma import FusedMultiplyAdd
from hotrow_sim.golden.float import fused_multiply_add

from tests.support.benches.float_bench import check, run, run_verilated
from tests.support.benches.float_cases import (
    CORNERS,
    MINUS_ZERO,
    ONE,
    multiply_add_cases,
    numbers,
    products,
)
from tests.support.benches.stream_bench import RAGGED, STEADY

ALL_CORNERS = products(CORNERS[::2], CORNERS, CORNERS)


def compare(operands, seed=None, gaps=STEADY):
    results, cycles = run(FusedMultiplyAdd(), *operands, gaps=gaps)
    check(results, fused_multiply_add(*operands), operands, seed)
    assert (cycles == FusedMultiplyAdd.latency).all()


@pytest.mark.slow
def test_corners():
    """Corner values with both signs of product and addend: every fifth combination.

    The slow test takes all of them.
    """
    compare([each[::5] for each in ALL_CORNERS])


@pytest.mark.slow
def test_every_distance():
    """An addend from far above to far below the product, with equal and opposite signs.

    The products end in their last bit, make a tie, or have a subnormal factor. The addends have
    all fraction bits set, one or none.
    """
    cases = []
    for a, b in ((0x3FFFFFFF, 0x3FFFFFFF), (0x3F800001, 0x3FC00000), (1, 0x7E800000),
                 (0x7FFFFF, 0x5F7FFFFF)):
        centre = (a >> 23) + (b >> 23) - 127
        for exponent in range(max(0, centre - 54), min(255, centre + 30)):
            for sign, fraction in ((0, 0x7FFFFF), (1, 0x7FFFFF), (1, 0), (1, 1)):
                cases.append((a, b, int(numbers(sign, exponent, fraction))))
    compare([np.array(each, np.uint32) for each in zip(*cases, strict=True)])


def test_ties_go_to_even():
    """Half a unit above and below every pattern of last bits, subnormal results included."""
    one, half_unit = np.uint32(ONE), np.uint32(ONE - (24 << 23))
    last = np.arange(16, dtype=np.uint32)
    near = half_unit + np.array([0, 1, MINUS_ZERO, MINUS_ZERO + 1])
    sums = [products(one[None], near, one + last)]
    # 2**-63 times an odd multiple of 2**-87 lies between two subnormals.
    odd = (2 * last + 1).astype(np.float32) * np.float32(2.0 ** -87)
    factors = np.array([2.0 ** -63, -(2.0 ** -63)], np.float32)
    sums.append(products(factors.view(np.uint32), odd.view(np.uint32),
                         np.array([0, MINUS_ZERO, 1, 0x800000], np.uint32)))
    compare([np.concatenate(each).astype(np.uint32) for each in zip(*sums, strict=True)])


def test_random():
    compare(multiply_add_cases(600, seed=1), 1)


def test_with_gaps():
    compare(multiply_add_cases(60, seed=3), 3, RAGGED)


@pytest.mark.parametrize("count, seeds", [
    pytest.param(20_000, (11, 12), marks=pytest.mark.slow),
    pytest.param(2_000_000, range(21, 26), marks=pytest.mark.long)])
def test_many(count, seeds):
    for seed in seeds:
        operands = [np.concatenate(each) for each in zip(
            ALL_CORNERS, multiply_add_cases(count, seed), strict=True)]
        results, cycles = run_verilated(FusedMultiplyAdd(), *operands, seed=seed % 2 * seed)
        check(results, fused_multiply_add(*operands), operands, seed)
        assert (cycles == FusedMultiplyAdd.latency).all()
