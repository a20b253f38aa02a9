"""SquareRoot against its golden model and its cycle model."""

import numpy as np
import pytest
from hotrow_rtl.float.sqrt import SquareRoot
from hotrow_sim.golden.float import square_root

from tests.rtl.float.float_cycles import root_cycles
from tests.support.benches.float_bench import check, run, run_verilated
from tests.support.benches.float_cases import CORNERS, ONE, numbers, root_cases
from tests.support.benches.stream_bench import RAGGED, STEADY


def check_all(results, cycles, a, seed):
    check(results, square_root(a), (a,), seed)
    assert (cycles == root_cycles(a)).all(), f"seed {seed}"


def compare(a, seed=None, gaps=STEADY, pauses=STEADY):
    results, cycles = run(SquareRoot(), a, gaps=gaps, pauses=pauses)
    check_all(results, cycles, a, seed)


def test_corners():
    compare(CORNERS)


@pytest.mark.slow
def test_every_exponent():
    exponent = np.arange(255)
    compare(numbers(0, exponent, np.array([0, 1, 0x400000, 0x7FFFFF])[exponent // 2 % 4]))


def test_every_leading_zero():
    compare(np.array([bits for place in range(23) for bits in (1 << place, (2 << place) - 1)],
                     np.uint32))


@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED)])
def test_random(gaps, pauses):
    compare(root_cases(80, seed=1), 1, gaps, pauses)


def test_next_operand_after_the_result():
    count = 10
    a = np.full(count, ONE + 7, np.uint32)
    run(SquareRoot(), a, limit=count * (SquareRoot.latency + 1) + 1)


@pytest.mark.parametrize("count, seeds", [
    pytest.param(10_000, (11, 12), marks=pytest.mark.slow),
    pytest.param(1_000_000, (21, 22, 23), marks=pytest.mark.long)])
def test_many(count, seeds):
    for seed in seeds:
        a = root_cases(count, seed)
        results, cycles = run_verilated(SquareRoot(), a, seed=seed % 2 * seed)
        check_all(results, cycles, a, seed)


@pytest.mark.long
def test_every_fraction():
    """Every third significand, with an even and an odd exponent."""
    for exponent in (127, 128):
        a = numbers(0, exponent, np.arange(1 << 23, dtype=np.uint32)[::3])
        check_all(*run_verilated(SquareRoot(), a), a, None)
