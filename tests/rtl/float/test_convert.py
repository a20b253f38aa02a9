"""Widen and Narrow against their golden models."""

import numpy as np
import pytest
from hotrow_rtl.float.convert import Narrow, Widen
from hotrow_rtl.float.formats import ElementType
from hotrow_sim.golden.float import narrow, widen

from tests.support.benches.float_bench import check, run, run_verilated
from tests.support.benches.float_cases import CORNERS, finite, halfway, numbers, products
from tests.support.benches.stream_bench import RAGGED

SHAPES = {"fp16": (10, 5), "bf16": (7, 8)}  # fraction and exponent bits
KINDS = ["fp32", *SHAPES]
HALVES = np.arange(1 << 16, dtype=np.uint16)


def types(count, seed):
    """Random operand types."""
    return np.random.default_rng(seed).integers(0, len(KINDS), count, dtype=np.uint32)


def widened(values, type_):
    """`widen` each value from its own type; the upper bits of a 16-bit element are ignored."""
    results = np.zeros_like(values)
    for kind in KINDS:
        chosen = type_ == ElementType[kind.upper()].value
        bits = values[chosen] if kind == "fp32" else values[chosen].astype(np.uint16)
        results[chosen] = widen(bits, kind)
    return results


def narrowed(values, type_):
    """`narrow` each value to its own type."""
    results = np.zeros_like(values)
    for kind in KINDS:
        chosen = type_ == ElementType[kind.upper()].value
        results[chosen] = narrow(values[chosen], kind)
    return results


MODELS = {Widen: widened, Narrow: narrowed}


def compare(unit, values, type_, seed=None, run=run, **options):
    if isinstance(type_, str):
        type_ = np.full(len(values), ElementType[type_.upper()].value, np.uint32)
    results, cycles = run(unit(), values, type_, **options)
    check(results, MODELS[unit](values, type_), (values, type_), seed)
    assert (cycles == unit.latency).all()


@pytest.mark.parametrize("kind", SHAPES)
def test_widen_halves(kind):
    """Subnormals, and numbers of every exponent; the slow test takes all."""
    values = np.concatenate([HALVES[:1100:3], HALVES[::101], np.uint16(1 << 15) + HALVES[:1100:19]])
    compare(Widen, values.astype(np.uint32), kind)


@pytest.mark.parametrize("kind", SHAPES)
def test_narrow_about_ties(kind):
    compare(Narrow, np.concatenate([halfway(*SHAPES[kind])[::401], CORNERS]), kind)


@pytest.mark.parametrize("kind, exponents", [
    ("fp16", [98, 101, 102, 103, 107, 112, 113, 142, 143]), ("bf16", [0, 254])])
def test_narrow_every_bit(kind, exponents):
    """Fractions with one bit set, two adjacent bits, the last and another one, or all bits below
    one. The fp16 exponents lie below the smallest number, among the subnormals, and about the
    largest number."""
    bits = [1 << place for place in range(23)]
    fractions = np.unique([each for one in bits for each in (one, one * 3 // 2, one | 1, one - 1)])
    exponent, fraction = products(np.array(exponents), fractions)
    compare(Narrow, numbers(fraction & 1, exponent, fraction), kind)


@pytest.mark.parametrize("unit", MODELS)
def test_types_in_any_order(unit):
    """With idle cycles, and random bits above 16-bit elements."""
    values = np.concatenate([finite(250, np.random.default_rng(1), 100, 150), CORNERS])
    compare(unit, values, types(len(values), 2), 1, gaps=RAGGED)


@pytest.mark.parametrize("count", [
    pytest.param(10_000, marks=pytest.mark.slow), pytest.param(1_000_000, marks=pytest.mark.long)])
def test_all(count):
    """Every 16-bit number, every tie with its neighbours, and random numbers."""
    for kind, shape in SHAPES.items():
        compare(Widen, HALVES.astype(np.uint32), kind, run=run_verilated)
        compare(Narrow, halfway(*shape), kind, run=run_verilated)
    for unit in MODELS:
        for seed in (11, 12):
            rng = np.random.default_rng(seed)
            values = np.concatenate([finite(count, rng, 90, 150),
                                     rng.integers(0, 1 << 32, count, dtype=np.uint32)])
            type_ = types(len(values), seed + 100)
            results, cycles = run_verilated(unit(), values, type_, seed=seed)
            check(results, MODELS[unit](values, type_), (values, type_), seed)
            assert (cycles == unit.latency).all()
