"""RowUpdate with its gradient sums against golden, cycle and memory models."""

import numpy as np
import pytest
from hotrow_rtl.config import PRESETS
from hotrow_sim.cycles.arithmetic import update_cycles

from tests.support.benches.float_cases import fractions, numbers
from tests.support.benches.pool_bench import TYPES, Update, check_rows, run_update
from tests.support.benches.stream_bench import RAGGED

UNITS = {name: config.units for name, config in PRESETS.items()}
TINY, ONE, WIDE = UNITS["tiny"], UNITS["ecp5"], UNITS["alveo-u55c"]
SIMULATED = 3000  # cycles
MIXED = [1, 1, 2, 3, 1, 9, 1, 1, 1, 2, 1, 30]
LR, EPS = (int(np.float32(value).view(np.uint32)) for value in (0.05, 1e-8))


def values(shape, rng, special=False):
    """fp32 numbers near 1; with `special` random bits with many subnormals."""
    if special:
        drawn = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
        return np.where(rng.random(shape) < 0.3, drawn & np.uint32(0x807FFFFF), drawn)
    count = int(np.prod(shape))
    return numbers(rng.integers(0, 2, count), rng.integers(112, 132, count),
                   fractions(count, rng)).reshape(shape)


def draw(counts, elements, kind="fp32", gradient_kind="fp32", adagrad=False, seed=1,
         special=False):
    rng = np.random.default_rng(seed)

    def rows(count, kind):
        drawn = values((count, elements), rng, special)
        return drawn if kind == "fp32" else (drawn >> np.uint32(16)).astype(TYPES[kind])
    states = values(len(counts), rng) & np.uint32(0x7FFFFFFF) if adagrad else None
    return Update(rows(len(counts), kind), rows(sum(counts), gradient_kind), list(counts), LR,
                  kind, gradient_kind, states, EPS)


def compare(config, update, seed=None, verilated=True, **options):
    rows, states, cycles = run_update(config, update, verilated=verilated, **options)
    assert rows is not None, f"incomplete within the cycle limit, seed {seed}"
    expected, expected_states = update.expected()
    check_rows(rows, expected, seed)
    if states is not None:
        check_rows(states[:, None], expected_states[:, None], seed)
    return cycles


@pytest.mark.slow
def test_sgd():
    compare(TINY, draw([1, 2], 24, "bf16", "bf16"), verilated=False, limit=SIMULATED)


@pytest.mark.slow
def test_adagrad_with_stalls():
    compare(TINY, draw([1, 2], 8, "fp16", adagrad=True), verilated=False,
            gaps=(RAGGED,) * 4, pauses=(RAGGED,) * 2, limit=SIMULATED)


CONFIGS = pytest.mark.parametrize("config", [
    pytest.param(TINY, id="tiny", marks=pytest.mark.slow),
    pytest.param(ONE, id="one-lane", marks=pytest.mark.long),
    pytest.param(WIDE, id="bus-64", marks=pytest.mark.long)])
BOTH = pytest.mark.parametrize("adagrad", [False, True], ids=["sgd", "adagrad"])


@CONFIGS
@BOTH
def test_every_size_and_type(config, adagrad):
    seed = 200
    for kind in TYPES:
        for gradient_kind in ("fp32", kind):
            for row_bytes in (16, 32, 48, 64, 80, 112, 240, 496, 512, 1008, 2048, 4096):
                elements = row_bytes // np.dtype(TYPES[kind]).itemsize
                # A gradient is a row of the mover, too.
                if max(row_bytes, elements * np.dtype(TYPES[gradient_kind]).itemsize) \
                        > config.row_bytes:
                    continue
                for special in (False, True):
                    seed += 1
                    compare(config, draw(MIXED, elements, kind, gradient_kind, adagrad, seed,
                                         special), seed)


@CONFIGS
@BOTH
def test_with_stalls(config, adagrad):
    patterns = [(0,), RAGGED, (0,) * 20 + (200,), (7,)]
    seed = 0
    for gap in patterns:
        for other in patterns:
            for pause in patterns:
                seed += 1
                kind = list(TYPES)[seed % 3]
                update = draw(MIXED, (8, 24, 64, 120)[seed % 4], kind, adagrad=adagrad, seed=seed)
                compare(config, update, seed, gaps=(gap, other, gap, other),
                        pauses=(pause, other))


@CONFIGS
@BOTH
def test_cycles(config, adagrad):
    """One lane sums first, here further ahead of Adagrad than the mover's words allow."""
    tolerance = 0.15 if adagrad and config.lanes == 1 else 0.02
    for elements in (16, 36 * config.squares, 64, 128):
        for counts in ([1] * 300, [2] * 100, [1, 1, 1, 5] * 40, [20] * 60):
            cycles = compare(config, draw(counts, elements, adagrad=adagrad))
            model = update_cycles(config, elements, counts, adagrad)
            assert abs(cycles - model) <= tolerance * model, (elements, counts[:4], cycles, model)


@CONFIGS
def test_sgd_takes_a_beat_a_cycle(config):
    """One lane takes those of gradients and rows in turn."""
    update = draw([1] * 500, 128)
    cycles = compare(config, update)
    beats = 500 * 128 / config.lanes * (2 if config.lanes == 1 else 1)
    assert beats / cycles >= 0.95


@CONFIGS
@pytest.mark.parametrize("counts", [[2000], [20] * 60], ids=["hot-row", "20-each"])
def test_gradients_take_a_beat_a_cycle(config, counts):
    """The gradients of a row do not wait for the adder; one lane takes the rows' beats in turn."""
    cycles = compare(config, draw(counts, 16))
    beats = (sum(counts) + len(counts) * (config.lanes == 1)) * 16 / config.lanes
    assert beats / cycles >= 0.9


@CONFIGS
@BOTH
def test_restart_in_flight(config, adagrad):
    update = draw(MIXED, 16, adagrad=adagrad, seed=3)
    for limit in range(1, 500, 29):
        other = draw([1] * 700, 32, adagrad=not adagrad)
        assert run_update(config, other, limit=limit)[0] is None
        compare(config, update)
