"""Square against its golden model."""

import numpy as np
import pytest
from hotrow_rtl.float.square import Square
from hotrow_sim.golden.float import fused_multiply_add

from tests.support.benches.float_bench import check, run, run_verilated
from tests.support.benches.float_cases import CORNERS, MINUS_ZERO, numbers
from tests.support.benches.stream_bench import RAGGED, STEADY


def compare(operands, seed=None, results=None, gaps=STEADY):
    operands = np.asarray(operands, np.uint32)
    results, cycles = results or run(Square(), operands, gaps=gaps)
    check(results, fused_multiply_add(operands, operands, np.full_like(operands, MINUS_ZERO)),
          (operands,), seed)
    assert (cycles == Square.latency).all()


def cases(count, seed):
    """Random bits; half of the numbers have a square near the smallest numbers."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    small = numbers(rng.integers(0, 2, count), rng.integers(48, 68, count), bits & 0x7FFFFF)
    # Few bits set: ties and exact squares.
    sparse = np.where(rng.integers(0, 2, count), small & 0xFFFFF000, small)
    return np.where(rng.integers(0, 2, count), sparse, bits).astype(np.uint32)


def test_corners():
    compare(CORNERS)


def test_every_exponent():
    """Fractions without bits, with the last, with all, and around the square root of two."""
    fractions = np.array([0, 1, 0x7FFFFF, 0x3504F2, 0x3504F3, 0x3504F4, 0x400000, 0x7FF000, 0x800])
    compare([int(numbers(sign, exponent, fraction)) for exponent in range(256)
             for sign, fraction in zip((0, 1, 0, 1, 0, 1, 0, 1, 0), fractions, strict=True)])


def test_with_gaps():
    compare(cases(60, seed=3), 3, gaps=RAGGED)


@pytest.mark.parametrize("count, seeds", [
    pytest.param(20_000, (11, 12), marks=pytest.mark.slow),
    pytest.param(2_000_000, range(21, 26), marks=pytest.mark.long)])
def test_many(count, seeds):
    for seed in seeds:
        operands = cases(count, seed)
        compare(operands, seed, run_verilated(Square(), operands, seed=seed % 2 * seed))
