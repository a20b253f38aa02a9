"""Add against its golden model."""

import numpy as np
import pytest
from hotrow_rtl.float.add import Add
from hotrow_sim.golden.float import fused_multiply_add

from tests.support.benches.float_bench import check, run, run_verilated
from tests.support.benches.float_cases import (
    CORNERS,
    ONE,
    finite,
    multiply_add_cases,
    numbers,
    products,
)
from tests.support.benches.stream_bench import RAGGED, STEADY


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


@pytest.mark.parametrize("exponent", [120, 3])
def test_every_distance(exponent):
    """Significands of all ones, of one bit and of the smallest value, with either sign."""
    fractions = np.array([0, 1, 0x400000, 0x7FFFFF])
    sign, distance, fraction, other = products(
        np.arange(2), np.arange(-28, 29, 1 if exponent == 120 else 3), fractions, fractions)
    compare([numbers(0, np.full_like(fraction, exponent), fraction),
             numbers(sign, exponent + distance.astype(np.int64), other)])


def test_random():
    compare(cases(300, seed=1), 1)


def test_with_gaps():
    compare(cases(60, seed=3), 3, RAGGED)


@pytest.mark.parametrize("count, seeds", [
    pytest.param(10_000, (11, 12), marks=pytest.mark.slow),
    pytest.param(1_000_000, (21, 22, 23), marks=pytest.mark.long)])
def test_many(count, seeds):
    for seed in seeds:
        operands = cases(count, seed)
        results, cycles = run_verilated(Add(), *operands, seed=seed % 2 * seed)
        ones = np.full_like(operands[0], ONE)
        check(results, fused_multiply_add(ones, *operands), operands, seed)
        assert (cycles == Add.latency).all()
