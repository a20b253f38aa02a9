"""Counts against brute force, on drawn and on recorded accesses."""

import numpy as np
import pytest
from hotrow.traces.trace import StoredTrace
from hotrow_explore import locality
from hotrow_explore.workloads import find as workload
from hotrow_explore.workloads import of_trace

SEED = 3


def test_counts_of_a_batch_by_brute_force():
    rng = np.random.default_rng(SEED)
    drawn = [rng.integers(40, size=60) for _ in range(4)]
    sample = np.repeat(np.arange(20), 3)
    figures, popular = locality._score(drawn, [sample] * 4, 20, lambda row: row < 15,
                                        lambda row: row < 0, 2)
    expected, shares = np.zeros(5), []
    for number in (2, 3):
        rows = drawn[number].tolist()
        missing = {row for row in rows if row >= 15}
        held = set(drawn[number - 1].tolist()) | set(drawn[number - 2].tolist())
        expected += (60, len(set(rows)), sum(row < 15 for row in rows), len(missing),
                     len(missing - held))
        shares.append(np.mean([all(row < 15 for row in rows[3 * s:3 * s + 3])
                               for s in range(20)]))
    assert figures == pytest.approx(expected / 2), f"seed {SEED}"
    assert popular == pytest.approx(np.mean(shares)), f"seed {SEED}"


def test_hot_ranks_are_the_top_of_the_law():
    rows, lookups, many, slope = [50, 2000], [1, 4], [2, 1], 0.9
    top = locality.hot_ranks(rows, lookups, many, slope, 300)
    frequency = []
    for size, n, count in zip(rows, lookups, many, strict=True):
        law = np.arange(1, size + 1) ** -slope
        frequency += [n * law / law.sum()] * count
    kind = np.concatenate([[0] * 50, [0] * 50, [1] * 2000])
    best = kind[np.argsort(-np.concatenate(frequency), kind="stable")[:300]]
    assert top[0] == pytest.approx(np.sum(best == 0) / 2, abs=2)
    assert top[1] == pytest.approx(np.sum(best == 1), abs=4)
    assert locality.hot_ranks(rows, lookups, many, slope, 10**6).tolist() == rows


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("slope", [0.0, 0.9, 1.6])
def test_expected_counts_are_those_of_draws(monkeypatch, slope, whole):
    kinds = ((200_000, 2, False), 1), ((30_000, 5, whole), 1)
    arguments = kinds, 40_000, slope, 1500, 3
    drawn = locality._of_law.__wrapped__(*arguments)
    monkeypatch.setattr(locality, "DRAWN", 0)
    expected = locality._of_law.__wrapped__(*arguments)
    assert vars(expected) == pytest.approx(vars(drawn), rel=0.03, abs=0.002)


def test_a_larger_budget_hits_more():
    found = [locality.count(workload("criteo-kaggle"), hot) for hot in (10**3, 10**5, 10**7)]
    assert found[0].hit_rate < found[1].hit_rate < found[2].hit_rate
    assert found[0].popular < found[1].popular < found[2].popular
    assert found[0].misses > found[1].misses > found[2].misses


def stored(ids):
    ids = np.asarray(ids, np.uint32)
    return StoredTrace("stored", [f"c{i}" for i in range(ids.shape[1])], ids,
                       np.zeros((len(ids), 0), np.float32), None)


def test_a_trace_is_not_scored_on_its_training_part():
    """The hot rows of the first batches do not recur, so there are no hits."""
    early, late = np.zeros((100, 1)), 1 + np.arange(1900).reshape(-1, 1)
    trace = of_trace(stored(np.concatenate([early, late])), batch=100)
    assert locality.count(trace, 1).hit_rate == 0.0
    assert locality.count(trace, 10**9).hit_rate == 1.0


def test_a_trace_learns_its_hot_rows():
    ids = np.random.default_rng(SEED).integers(1000, size=(4000, 2))
    ids[::2] = 7
    seen = locality.count(of_trace(stored(ids), batch=200), 2)
    assert seen.hit_rate == pytest.approx(0.5, abs=0.02), f"seed {SEED}"
    assert seen.popular == pytest.approx(0.5, abs=0.02), f"seed {SEED}"
    assert seen.lookups == 400


@pytest.mark.parametrize("traced", [False, True])
def test_whole_tables_are_hot_beside_the_most_accessed_rows(traced):
    """Of two tables with equal rows: the lookups of the whole one hit, the other's as before."""
    ids = np.random.default_rng(3).integers(500, size=(4000, 2))
    work = of_trace(stored(ids), batch=200) if traced else workload("criteo-kaggle").changed(
        rows=(500, 500), lookups=(1, 1), slope=0.0)
    half, both = locality.count(work, 0, 1, frozenset({0})), locality.count(work, 0, 1)
    assert both.hit_rate == 0 and half.hit_rate == pytest.approx(0.5)
    assert half.unique == pytest.approx(both.unique / 2, rel=0.1)
    assert half.misses == half.unique and half.popular == 0
    every = locality.count(work, 10**6, 1, frozenset({0}))
    assert every.hit_rate > half.hit_rate and every.unique == half.unique
