"""Add against its golden model."""

import numpy as np
import pytest
from hotrow_rtl.float.add import Add
from hotrow_sim.golden.float import fused_multiply_add
from hotrow_sim.testing.benches.float_bench import check, run, run_verilated
from hotrow_sim.testing.benches.float_cases import (
    CORNERS,
    ONE,
    finite,
    multiply_add_cases,
    numbers,
    products,
)
from hotrow_sim.testing.benches.stream_bench import RAGGED, STEADY


def cases(count, seed):
    """Operands at every exponent distance, operands of similar size, and random bits."""
    a, b, c = multiply_add_cases(count, seed)
    rng = np.random.default_rng(seed)
    product = fused_multiply_add(a, b, np.full_like(a, 0x80000000))
    low, high = finite(count, rng, 0, 3), finite(count, rng, 0, 30)
    return [np.concatenate(each) for each in ((product, a, low), (c, b, high))]


def compare(operands, seed=None, gaps=STEADY, run=run):
    results, cycles = run(Add(), *operands, gaps=gaps)
    check(results, fused_multiply_add(np.full_like(operands[0], ONE), *operands), operands, seed)
    assert (cycles == Add.latency).all()


def test_corners():
    compare(products(CORNERS, CORNERS))


def test_every_distance():
    """Significands of all ones, of one bit and of the smallest value, with either sign."""
    fractions = np.array([0, 1, 0x400000, 0x7FFFFF])
    sign, distance, fraction, other = products(
        np.arange(2), np.arange(-34, 35), fractions, fractions)
    compare([numbers(0, np.full_like(fraction, 120), fraction),
             numbers(sign, 120 + distance.astype(np.int64), other)])
    compare([numbers(0, np.full_like(fraction, 3), fraction),
             numbers(sign, 3 + distance.astype(np.int64), other)])


def test_random():
    compare(cases(2500, seed=1), 1)


def test_with_gaps():
    compare(cases(200, seed=3), 3, RAGGED)


@pytest.mark.slow
def test_millions():
    for seed in range(11, 14):
        operands = cases(1_000_000, seed)
        results, cycles = run_verilated(Add(), *operands, seed=seed % 2 * seed)
        ones = np.full_like(operands[0], ONE)
        check(results, fused_multiply_add(ones, *operands), operands, seed)
        assert (cycles == Add.latency).all()
