import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import MISS_WAYS, preset
from hotrow_rtl.contract.encoding import MISS_FLAG, NO_SLOT, BatchFlag
from hotrow_rtl.lookup.hashing.row_location import split_key
from hotrow_sim.golden.lookup.reader import read_batch
from hotrow_sim.golden.lookup.splitter import split

TINY = preset("tiny")
CRAMPED = dataclasses.replace(TINY, name="cramped", miss_entries=32)


def brute_force(config, lookups, found, refused, beat):
    """(slots, popular, nonpopular, misses, unkept), lookup by lookup."""
    slots, misses, known, cold, unkept = [], [], {}, set(), 0
    newest, filled = {}, {}  # by row: (beat, word) of its owner; by set of the miss table: rows
    for table, row, sample, slot, bad, at in zip(
            lookups.table, lookups.row, lookups.sample, found, refused, beat, strict=True):
        key = int(table), int(row)
        if bad:
            slots.append(NO_SLOT)
        elif slot != NO_SLOT:
            slots.append(slot)
            continue
        elif key in newest and at - newest[key][0] <= config.window_beats:
            slots.append(newest[key][1])
        else:
            if key in known:
                slots.append(MISS_FLAG | known[key])
            else:
                bank, rest = split_key(config, key[0] << 32 | key[1])
                held = filled.setdefault((bank, rest % config.miss_sets), [])
                slots.append(MISS_FLAG | len(misses))
                if len(held) < MISS_WAYS:
                    held.append(key)
                    known[key] = len(misses)
                else:
                    unkept += 1
                misses.append(key)
            newest[key] = at, slots[-1]
        cold.add(int(sample))
    samples = range(lookups.samples)
    return (slots, [s for s in samples if s not in cold], [s for s in samples if s in cold],
            misses, unkept)


def batch(seed, flags=0, lengths=(0, 1, 1, 4), samples=37, tables=3, rows=25):
    rng = np.random.default_rng(seed)
    bags = rng.choice(lengths, samples * tables).astype(np.uint16)
    jagged = bool(flags & BatchFlag.JAGGED)
    count = int(bags.sum()) if jagged else samples * tables
    return rng, read_batch(rng.integers(0, rows, count).astype(np.uint32), samples, 2, tables,
                           flags, bags if jagged else None)


def check(lookups, found, refused, config=TINY):
    beat = np.arange(len(found)) // config.lanes
    got = split(config, lookups, found.copy(), refused, beat)
    want = brute_force(config, lookups, found, refused, beat)
    listed = list(zip(got.miss_table.tolist(), got.miss_row.tolist(), strict=True))
    assert (got.slots.tolist(), got.popular.tolist(), got.nonpopular.tolist(), listed,
            got.unkept) == want
    assert {part.dtype for part in (got.slots, got.popular, got.nonpopular, got.miss_table,
                                    got.miss_row)} == {np.dtype(np.uint32)}
    return want


@pytest.mark.parametrize("flags", [BatchFlag(0), BatchFlag.FEATURE_MAJOR, BatchFlag.JAGGED,
                                   BatchFlag.JAGGED | BatchFlag.FEATURE_MAJOR], ids=str)
@pytest.mark.parametrize("config", [TINY, CRAMPED], ids=lambda config: config.name)
@pytest.mark.parametrize("seed", range(4))
def test_split_equals_brute_force(flags, config, seed):
    rng, lookups = batch(seed, flags)
    resident = rng.integers(0, 100, (5, 25)).astype(np.uint32)
    resident[rng.random((5, 25)) < 0.3] = NO_SLOT
    found = resident[lookups.table, lookups.row.astype(int)]
    check(lookups, found, rng.random(len(found)) < 0.05, config)


@pytest.mark.parametrize("found, refused, popular", [
    (7, False, 37), (NO_SLOT, False, 0), (NO_SLOT, True, 0), (7, True, 0)],
    ids=["all hit", "all miss", "all refused", "resident rows refused"])
def test_uniform_batches(found, refused, popular):
    _, lookups = batch(seed=9)
    count = len(lookups.row)
    _, hot, *_ = check(lookups, np.full(count, found, np.uint32), np.full(count, refused))
    assert len(hot) == popular


def test_rows_without_a_place_are_listed_at_each_appearance():
    """Six rows of one set of two ways, first far apart, then close together."""
    rows = [row for row in range(1 << 16) if split_key(TINY, row)[0] == 3
            and split_key(TINY, row)[1] % TINY.miss_sets == 1][:6]
    apart = TINY.lanes * (TINY.window_beats + 3)
    ids = np.array(rows + [0] * (apart - 6) + rows[::-1] + rows, np.uint32)
    lookups = read_batch(ids, len(ids), 0, 1)
    *_, misses, unkept = check(lookups, np.full(len(ids), NO_SLOT, np.uint32),
                               np.zeros(len(ids), bool))
    assert [row for _, row in misses] == [*rows, 0, *rows[:1:-1]] and unkept == 8


def test_same_row_of_two_tables_is_two_misses():
    lookups = read_batch(np.array([5, 5, 5, 5], np.uint32), 2, 0, 2)
    _, _, _, misses, _ = check(lookups, np.full(4, NO_SLOT, np.uint32), np.zeros(4, bool))
    assert misses == [(0, 5), (1, 5)]


def test_sample_without_lookups_is_popular():
    lengths = np.array([1, 0, 1], np.uint16)
    lookups = read_batch(np.array([3, 4], np.uint32), 3, 0, 1, BatchFlag.JAGGED, lengths)
    _, popular, *_ = check(lookups, np.full(2, NO_SLOT, np.uint32), np.zeros(2, bool))
    assert popular == [1]


def test_order_of_random_positions_is_kept():
    rng, lookups = batch(seed=4, samples=200, tables=1)
    found = np.where(rng.random(200) < 0.5, np.uint32(1), np.uint32(NO_SLOT))
    got = split(TINY, lookups, found, np.zeros(200, bool), np.arange(200) // TINY.lanes)
    for part in (got.popular, got.nonpopular):
        assert 50 < len(part) < 150
        assert (np.diff(part.astype(int)) > 0).all()
