import numpy as np
import pytest
from hotrow_rtl.contract import MISS_FLAG, NO_SLOT, BatchFlag
from hotrow_sim.golden.lookups import read_batch
from hotrow_sim.golden.splitter import split


def brute_force(lookups, found, refused, miss_entries):
    """(slots, popular, nonpopular, misses) by walking the lookups one by one."""
    slots, misses, known, cold = [], [], {}, set()
    for table, row, sample, slot, bad in zip(
            lookups.table, lookups.row, lookups.sample, found, refused):
        key = int(table), int(row)
        if bad:
            slots.append(NO_SLOT)
        elif slot != NO_SLOT:
            slots.append(slot)
            continue
        elif key in known:
            slots.append(MISS_FLAG | known[key])
        else:
            slots.append(MISS_FLAG | len(misses))
            if len(known) < miss_entries:
                known[key] = len(misses)
            misses.append(key)
        cold.add(int(sample))
    samples = range(lookups.samples)
    return (slots, [s for s in samples if s not in cold], [s for s in samples if s in cold], misses)


def batch(seed, flags=0, lengths=(0, 1, 1, 4), samples=37, tables=3, rows=25):
    rng = np.random.default_rng(seed)
    bags = rng.choice(lengths, samples * tables).astype(np.uint16)
    jagged = bool(flags & BatchFlag.JAGGED)
    count = int(bags.sum()) if jagged else samples * tables
    return rng, read_batch(rng.integers(0, rows, count).astype(np.uint32), samples, 2, tables,
                           flags, bags if jagged else None)


def check(lookups, found, refused, miss_entries):
    got = split(lookups, found.copy(), refused, miss_entries)
    want = brute_force(lookups, found, refused, miss_entries)
    listed = list(zip(got.miss_table.tolist(), got.miss_row.tolist()))
    assert (got.slots.tolist(), got.popular.tolist(), got.nonpopular.tolist(), listed) == want
    assert {part.dtype for part in (got.slots, got.popular, got.nonpopular, got.miss_table,
                                    got.miss_row)} == {np.dtype(np.uint32)}
    return want


@pytest.mark.parametrize("flags", [BatchFlag(0), BatchFlag.FEATURE_MAJOR, BatchFlag.JAGGED,
                                   BatchFlag.JAGGED | BatchFlag.FEATURE_MAJOR], ids=str)
@pytest.mark.parametrize("miss_entries", [4, 16, 1024])
@pytest.mark.parametrize("seed", range(4))
def test_split_equals_brute_force(flags, miss_entries, seed):
    rng, lookups = batch(seed, flags)
    resident = rng.integers(0, 100, (5, 25)).astype(np.uint32)
    resident[rng.random((5, 25)) < 0.3] = NO_SLOT
    found = resident[lookups.table, lookups.row.astype(int)]
    check(lookups, found, rng.random(len(found)) < 0.05, miss_entries)


@pytest.mark.parametrize("found, refused, popular", [
    (7, False, 37), (NO_SLOT, False, 0), (NO_SLOT, True, 0), (7, True, 0)],
    ids=["all hit", "all miss", "all refused", "resident rows refused"])
def test_uniform_batches(found, refused, popular):
    _, lookups = batch(seed=9)
    count = len(lookups.row)
    _, hot, _, _ = check(lookups, np.full(count, found, np.uint32), np.full(count, refused), 16)
    assert len(hot) == popular


def test_rows_beyond_the_entries_are_listed_at_each_appearance():
    lookups = read_batch(np.array([1, 2, 3, 3, 1, 2, 3], np.uint32), 7, 0, 1)
    missed = np.full(7, NO_SLOT, np.uint32)
    got = split(lookups, missed, np.zeros(7, bool), 2)
    assert (got.slots ^ MISS_FLAG).tolist() == [0, 1, 2, 3, 0, 1, 4]
    assert got.miss_row.tolist() == [1, 2, 3, 3, 3]


def test_same_row_of_two_tables_is_two_misses():
    lookups = read_batch(np.array([5, 5, 5, 5], np.uint32), 2, 0, 2)
    _, _, _, misses = check(lookups, np.full(4, NO_SLOT, np.uint32), np.zeros(4, bool), 16)
    assert misses == [(0, 5), (1, 5)]


def test_sample_without_lookups_is_popular():
    lengths = np.array([1, 0, 1], np.uint16)
    lookups = read_batch(np.array([3, 4], np.uint32), 3, 0, 1, BatchFlag.JAGGED, lengths)
    _, popular, _, _ = check(lookups, np.full(2, NO_SLOT, np.uint32), np.zeros(2, bool), 16)
    assert popular == [1]


def test_order_of_random_positions_is_kept():
    rng, lookups = batch(seed=4, samples=200, tables=1)
    found = np.where(rng.random(200) < 0.5, np.uint32(1), np.uint32(NO_SLOT))
    got = split(lookups, found, np.zeros(200, bool), 1024)
    for part in (got.popular, got.nonpopular):
        assert 50 < len(part) < 150
        assert (np.diff(part.astype(int)) > 0).all()
