"""Small tables wholly hot: when it pays, and that it does."""

import numpy as np
import pytest
from hotrow import HotRows, with_whole_tables

from tests.driver.conftest import register_tables


def hot_rows(*tables):
    """Of one list of counts by row for each table: all rows counted, by count descending."""
    entries = sorted(((count, table, row) for table, counts in enumerate(tables)
                      for row, count in enumerate(counts) if count), key=lambda e: -e[0])
    count, table, row = (np.array(column, np.uint32) for column in zip(*entries, strict=True))
    return HotRows(table, row, count, cycles=7)


def pairs(hot):
    return list(zip(hot.table.tolist(), hot.row.tolist(), strict=True))


def cut(hot, k):
    return HotRows(hot.table[:k], hot.row[:k], hot.count[:k], hot.cycles)


def test_the_last_rows_of_a_small_table_replace_colder_ones_of_a_large_one():
    # Of table 0 80 % of the lookups hit: two more rows make that 100 %, and cost table 1 4 %.
    hot = cut(hot_rows([40, 40, 1, 1], [60, 20, 2, 2]), 6)
    assert pairs(hot) == [(1, 0), (0, 0), (0, 1), (1, 1), (1, 2), (1, 3)]
    found = with_whole_tables(hot, 6, rows=[4, 1000], lookups=[100, 100])
    assert sorted(pairs(found)) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    assert (np.diff(found.count.astype(int)) <= 0).all() and found.cycles == 7


def test_a_table_that_costs_more_than_it_brings_stays_as_it_is():
    hot = cut(hot_rows([90, 2, 1, 1], [30, 30, 30]), 4)
    assert with_whole_tables(hot, 4, [4, 1000], [94, 94]).row.tolist() == hot.row.tolist()


def test_a_table_larger_than_the_room_stays_as_it_is():
    hot = hot_rows([5, 5, 5], [9, 9])
    assert pairs(with_whole_tables(hot, 5, [6, 1000], [100, 20])) == pairs(hot)


def test_free_room_is_used_for_whole_tables():
    hot = hot_rows([5, 0, 0], [9, 9])
    found = with_whole_tables(hot, 10, [3, 1000], [6, 20])
    assert pairs(found) == [(1, 0), (1, 1), (0, 0), (0, 1), (0, 2)]
    assert found.count.tolist() == [9, 9, 5, 0, 0]


def test_a_table_that_fills_the_room():
    found = with_whole_tables(hot_rows([5, 0, 0]), 3, [3], [6])
    assert pairs(found) == [(0, 0), (0, 1), (0, 2)]


def test_rows_that_nobody_looks_up_are_not_added():
    hot = hot_rows([5, 0, 0])
    assert pairs(with_whole_tables(hot, 3, [3], [5])) == pairs(hot)


def test_tables_that_nobody_looks_up_cost_nothing():
    hot = hot_rows([5], [], [3])
    assert pairs(with_whole_tables(hot, 9, [100, 4, 100], [6, 0, 6])) == pairs(hot)


@pytest.mark.parametrize("seed", range(20))
def test_any_choice_is_valid_and_its_estimate_no_worse(seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, 60, 6)
    counts = [np.minimum(rng.zipf(1.5, size), 100) * (rng.random(size) < 0.9) for size in rows]
    lookups = [each.sum() + rng.integers(0, 20) for each in counts]
    k = int(rng.integers(1, rows.sum()))
    hot = cut(hot_rows(*counts), k)
    found = with_whole_tables(hot, k, rows, lookups)
    assert len(found) <= k and len(set(pairs(found))) == len(found)
    assert (found.row < rows[found.table]).all()

    def estimate(chosen):
        product = 0.0
        for table, many in enumerate(lookups):
            own = chosen.table == table
            share = 1 if own.sum() == rows[table] else min(
                1, max(chosen.count[own].sum(), 0.5) / max(many, 1))
            product += many * np.log(share)
        return product
    assert estimate(found) >= estimate(hot) - 1e-9


def test_a_card_makes_more_samples_popular(device):
    """Learned on some samples, scored on others; a threshold leaves room."""
    register_tables(device, (30, 1000, 1000))
    rng = np.random.default_rng(5)

    def batch():
        large = np.minimum(rng.zipf(1.6, (500, 2)) - 1, 999)
        return np.column_stack([np.minimum(rng.geometric(0.1, 500) - 1, 29), large])

    device.observe(batch())
    device.clear_counters()  # and with them what is known of the tables
    device.observe(batch())
    device.decay()
    device.split(batch(), observe=True)
    later, popular = batch(), {}
    for whole in (False, True):
        device.clear_directory()
        hot = device.harvest(50, threshold=20, whole_tables=whole)
        assert len(hot) <= 50 and ((hot.table == 0).sum() == 30) == whole
        device.install(hot)
        popular[whole] = device.split(later).n_popular
    assert popular[True] > 1.05 * popular[False]
