"""RowPool against golden, cycle and memory models."""

import numpy as np
import pytest
from hotrow_rtl.config import PRESETS
from hotrow_sim.cycles.arithmetic import mean_cycles, pool_cycles

from tests.support.benches.float_cases import CORNERS, fractions, numbers
from tests.support.benches.pool_bench import TYPES, Bags, check_rows, run_pool
from tests.support.benches.stream_bench import RAGGED

UNITS = {name: config.units for name, config in PRESETS.items()}
TINY, ONE, WIDE = UNITS["tiny"], UNITS["ecp5"], UNITS["alveo-u55c"]
SIMULATED = 3000  # cycles
MIXED = [0, 1, 2, 0, 0, 15, 16, 17, 20, 3, 1, 1, 33, 0]


def draw(lengths, row_bytes, kind="fp32", seed=1, mean=False, weighted=False, special=False):
    """Bags of random rows; with `special` some are subnormal, infinite or NaN."""
    rng = np.random.default_rng(seed)
    dtype = TYPES[kind]
    shape = sum(lengths), row_bytes // np.dtype(dtype).itemsize
    weights = None
    if weighted:
        weights = rng.standard_normal(shape[0]).astype(np.float32).view(np.uint32)
    if special:
        rows = rng.integers(0, 1 << 8 * np.dtype(dtype).itemsize, shape).astype(dtype)
        tiny = rng.random(shape) < 0.3
        rows = np.where(tiny, rows & dtype(0x807FFFFF if kind == "fp32" else 0x807F), rows)
    else:
        count = shape[0] * shape[1]
        values = numbers(rng.integers(0, 2, count), rng.integers(117, 137, count),
                         fractions(count, rng)).reshape(shape)
        rows = values if kind == "fp32" else (values >> np.uint32(16)).astype(dtype)
    return Bags(rows, list(lengths), kind, weights, mean)


def compare(config, bags, seed=None, verilated=True, **options):
    rows, cycles = run_pool(config, bags, verilated=verilated, **options)
    assert rows is not None, f"incomplete within the cycle limit, seed {seed}"
    check_rows(rows, bags.expected(), seed)
    return cycles


@pytest.mark.slow
def test_weighted_sums():
    bags = draw([0, 1, 2, 17, 3], 16, weighted=True)
    cycles = compare(TINY, bags, verilated=False, limit=SIMULATED)
    model = pool_cycles(TINY, bags.rows.shape[1], bags.lengths)
    assert abs(cycles - model) <= 0.01 * model


@pytest.mark.slow
def test_means_with_stalls():
    compare(TINY, draw([2, 0, 1, 5], 48, "fp16", mean=True), verilated=False,
            gaps=(RAGGED, RAGGED), pauses=RAGGED, limit=SIMULATED)


@pytest.mark.slow
def test_elements_before_their_rows():
    compare(TINY, draw([2, 0, 1, 5], 48), verilated=False, gaps=((40,), (0,)), limit=SIMULATED)


CONFIGS = pytest.mark.parametrize("config", [
    pytest.param(TINY, id="tiny", marks=pytest.mark.slow),
    pytest.param(ONE, id="one-lane", marks=pytest.mark.long),
    pytest.param(WIDE, id="bus-64", marks=pytest.mark.long)])


@CONFIGS
def test_every_size_and_type(config):
    """Row sizes around each change of the number of partial sums."""
    seed = 100
    for kind in TYPES:
        for row_bytes in (16, 32, 48, 64, 80, 112, 128, 144, 240, 256, 272, 496, 512, 528, 1008,
                          1024, 1040, 2048, 4080, 4096):
            if row_bytes > config.row_bytes:
                continue
            for special in (False, True):
                seed += 1
                bags = draw(MIXED, row_bytes, kind, seed, seed % 3 == 0, seed % 2, special)
                compare(config, bags, seed)


@CONFIGS
def test_corners(config):
    """Every pair of corner values, in bags of one and two rows."""
    a, b = (each.ravel() for each in np.meshgrid(CORNERS, CORNERS))
    rows = np.repeat(np.stack([a, b], axis=1).reshape(-1, 1), 4, axis=1)
    for mean in (False, True):
        compare(config, Bags(rows, [2] * len(a), mean=mean))
        compare(config, Bags(rows, [1] * 2 * len(a), weights=np.roll(rows[:, 0], 1), mean=mean))


@CONFIGS
def test_long_bags(config):
    for row_bytes, mean in ((16, True), (64, False), (144, True)):
        compare(config, draw([1000, 1, 1000, 0, 257], row_bytes, seed=row_bytes, mean=mean,
                             weighted=True))


@CONFIGS
def test_with_stalls(config):
    """Idle cycles of both input streams crossed with back-pressure."""
    patterns = [(0,), RAGGED, (0,) * 40 + (90,), (7,)]
    seed = 0
    for gap in patterns:
        for other in patterns:
            for pause in patterns:
                seed += 1
                kind = list(TYPES)[seed % 3]
                bags = draw(MIXED, (16, 48, 128, 512)[seed % 4], kind, seed, seed % 5 == 0)
                compare(config, bags, seed, gaps=(gap, other), pauses=pause)


@CONFIGS
@pytest.mark.parametrize("length, count", [(1, 1000), (20, 100), (1000, 3)])
def test_a_word_a_cycle(config, length, count):
    for row_bytes in (64, 80, 128, 256, 512):
        bags = draw([length] * count, row_bytes)
        cycles = compare(config, bags)
        words = len(bags.rows) * -(-row_bytes // config.bus_bytes)
        assert words / cycles >= 0.9
        model = pool_cycles(config, bags.rows.shape[1], bags.lengths)
        assert abs(cycles - model) <= 0.01 * model


@CONFIGS
def test_cycles_of_other_bags(config):
    rng = np.random.default_rng(5)
    for lengths in (MIXED * 10, [2] * 300, [9] * 100, [16] * 100, rng.integers(0, 40, 200)):
        for row_bytes in (16, 64, 112, 240, 512):
            bags = draw(lengths, row_bytes)
            cycles = compare(config, bags)
            model = pool_cycles(config, bags.rows.shape[1], bags.lengths)
            assert abs(cycles - model) <= 0.01 * model, (list(lengths)[:3], row_bytes)


@CONFIGS
def test_cycles_of_means(config):
    for length, row_bytes in ((2, 64), (20, 64), (100, 64), (20, 256)):
        bags = draw([length] * 100, row_bytes, mean=True)
        cycles = compare(config, bags)
        model = mean_cycles(config, bags.rows.shape[1], bags.lengths)
        assert abs(cycles - model) <= 0.01 * model, (length, row_bytes, cycles, model)


@CONFIGS
def test_restart_in_flight(config):
    """After a reset at any cycle the results are correct."""
    bags = draw(MIXED, 64, seed=9)
    for limit in range(1, 400, 23):
        assert run_pool(config, draw([20] * 50, 128, mean=limit % 2), limit=limit)[0] is None
        compare(config, bags)


@pytest.mark.long
def test_order_is_that_of_any_bus():
    bags = draw([1, 16, 20, 100], 80, weighted=True)
    rows = [run_pool(config, bags)[0] for config in (TINY, WIDE)]
    assert (rows[0] == rows[1]).all()
