"""Divide against its golden model and its cycle model."""

import numpy as np
import pytest
from hotrow_rtl.float.divide import Divide
from hotrow_sim.golden.float import divide

from tests.rtl.float.float_cycles import divide_cycles
from tests.support.benches.float_bench import check, run, run_verilated
from tests.support.benches.float_cases import CORNERS, ONE, divide_cases, products
from tests.support.benches.stream_bench import RAGGED, STEADY


def check_all(results, cycles, a, b, seed):
    check(results, divide(a, b), (a, b), seed)
    with np.errstate(all="ignore"):
        quotient = a.view(np.float32).astype(np.float64) / b.view(np.float32)
    assert (cycles == divide_cycles(a, b, quotient)).all(), f"seed {seed}"


def compare(a, b, seed=None, gaps=STEADY, pauses=STEADY):
    results, cycles = run(Divide(), a, b, gaps=gaps, pauses=pauses)
    check_all(results, cycles, a, b, seed)


def test_corners():
    compare(*(each[::3] for each in products(CORNERS, CORNERS)))


@pytest.mark.slow
def test_every_exponent():
    """Exact quotients, rounded quotients, and both ends of the subnormal range."""
    for b, exponents in ((ONE + 3, range(0, 255, 5)), (0x7F000000, range(100, 255, 4)),
                         (0x00800000, range(0, 140, 4))):
        a = (np.array(exponents, np.uint32) << 23) | 1
        compare(a, np.full_like(a, b))


def test_ties_go_to_even():
    """Only a subnormal quotient can be a tie."""
    a, b = products(np.arange(0x800000, 0x800008, dtype=np.uint32),
                    np.array([2, 4, 8, 0.5, 2.0 ** 23, 2.0 ** 24], np.float32).view(np.uint32))
    compare(a, b)


@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED)])
def test_random(gaps, pauses):
    compare(*divide_cases(100, seed=1), 1, gaps, pauses)


def test_next_operands_after_the_result():
    count, dut = 10, Divide()
    a = np.full(count, ONE, np.uint32)
    run(dut, a, a + np.uint32(1), limit=count * (Divide.latency + 1) + 1)


@pytest.mark.parametrize("count, seeds", [
    pytest.param(10_000, (11, 12), marks=pytest.mark.slow),
    pytest.param(1_000_000, (21, 22, 23), marks=pytest.mark.long)])
def test_many(count, seeds):
    for seed in seeds:
        a, b = (np.concatenate(each) for each in zip(
            products(CORNERS, CORNERS), divide_cases(count, seed), strict=True))
        results, cycles = run_verilated(Divide(), a, b, seed=seed % 2 * seed)
        check_all(results, cycles, a, b, seed)
