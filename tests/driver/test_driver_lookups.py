"""Counters, directory and splitter through the driver, against dictionaries."""

import hotrow
import numpy as np
import pytest
from hotrow import MISS_FLAG, NO_SLOT

from tests.driver.conftest import ROWS, counts, counts_of, pairs, random_ids

SEEDS = (1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_harvest_counts_every_lookup(device, tables, seed):
    ids = random_ids(200, seed)
    expected = counts(ids)
    seen = device.observe(ids)
    assert (seen.lookups, seen.misses) == (ids.size, len(expected)), "no row may be displaced"
    assert seen.hits == ids.size - len(expected)
    assert seen.cycles > 0
    hot = device.harvest(200)
    assert counts_of(hot) == expected
    assert (np.diff(hot.count.astype(int)) <= 0).all(), "sorted by count, descending"


def test_harvest_keeps_the_most_counted(device, tables):
    expected = counts(random_ids(300, 3))
    device.observe(random_ids(300, 3))
    hot = device.harvest(10)
    assert hot.count.tolist() == sorted(expected.values())[::-1][:10]
    assert all(expected[pair] == count for pair, count in zip(pairs(hot), hot.count, strict=True))
    frequent = device.harvest(100, threshold=5)
    assert sorted(pairs(frequent)) == sorted(p for p, count in expected.items() if count >= 5)


def test_harvest_is_stable_among_equals(device, tables):
    ids = np.arange(40)[:, None] % ROWS
    device.observe(ids)
    device.observe(ids[::2])
    every, few = device.harvest(200), device.harvest(50)
    assert len(np.unique(every.count)) < 10 < len(every) == sum(ROWS)
    assert pairs(few) == pairs(every)[:50], "the card cuts ties in the order of its sets"


@pytest.mark.parametrize("shift", [0, 1, 3, 31, 32, 40])
def test_decay_shifts_counts(device, tables, shift):
    ids = random_ids(200, 4)
    device.observe(ids)
    device.decay(shift)
    hot = device.harvest(100)
    kept = {pair: count >> shift for pair, count in counts(ids).items() if count >> shift}
    assert counts_of(hot) == kept


def test_counts_are_restored(device, tables):
    """After another use of the card: the same rows, the same counts, in the same order."""
    for seed in range(3):
        device.observe(random_ids(100, seed))
    device.observe(hotrow.Batch.jagged(np.full(70_000, 3), [35_000, 35_000], 2, [tables[0]]))
    device.decay(1)
    kept = device.counts()
    device.observe(random_ids(200, 9))
    device.set_counts(kept)
    restored = device.counts()
    assert counts_of(restored) == counts_of(kept) and len(kept) > 20 and kept.count.max() > 32_000
    assert pairs(restored) == pairs(kept)
    most = sorted(pairs(kept), key=lambda pair: -counts_of(kept)[pair])
    assert pairs(device.harvest(10)) == most[:10]
    device.unregister_table(tables[1])
    device.clear_counters()
    kept = hotrow.HotRows(*np.array([[0, 2, 0], [1, 5, 2], [3, 9, 4]], np.uint32), 0)
    device.set_counts(kept)
    assert counts_of(device.counts()) == counts_of(kept), "numbers that are not consecutive"
    device.set_counts(hotrow.HotRows(*np.zeros((3, 0), np.uint32), 0))
    assert len(device.counts()) == 0
    with pytest.raises(hotrow.BatchError, match="row 40 is out of range"):
        device.set_counts(hotrow.HotRows(*np.array([[0], [40], [1]], np.uint32), 0))


def test_clear_counters(device, tables):
    device.observe(random_ids(50, 5))
    device.clear_counters()
    assert len(device.harvest(10)) == 0


def test_install_remove_and_split_follow_a_dictionary(device, tables):
    slots = {}
    rng = np.random.default_rng(6)
    for round_ in range(6):
        rows = [(int(t), int(rng.integers(ROWS[t]))) for t in rng.integers(3, size=12)]
        installed = device.install(tuple(np.array(rows).T))
        assert installed.hits == sum(row in slots or row in rows[:i] for i, row in enumerate(rows))
        assert installed.refused == 0 and installed.entries == len(rows)
        for row, slot in zip(rows, installed.slots.tolist(), strict=True):
            assert slots.setdefault(row, slot) == slot, f"round {round_}: a row keeps its slot"
        assert len(set(slots.values())) == len(slots), "no two rows share a slot"

        gone = rows[:4] + [(0, 39)]
        removed = device.remove(tuple(np.array(gone).T))
        expected = [slots.pop(row, NO_SLOT) for row in gone]
        assert removed.slots.tolist() == expected
        assert (removed.entries, removed.misses) == (
            len(gone) - expected.count(NO_SLOT), expected.count(NO_SLOT))
        check_split(device, random_ids(60, 7 + round_), slots)


def check_split(device, ids, slots):
    """A split against a dictionary of slots."""
    split = device.split(ids)
    missed = list(dict.fromkeys(
        (t, int(row)) for sample in ids for t, row in enumerate(sample)
        if (t, int(row)) not in slots))
    assert pairs(split.misses) == missed, "unique, in order of first appearance"
    flat = [(t, int(row)) for sample in ids for t, row in enumerate(sample)]
    assert split.slots.tolist() == [
        slots[pair] if pair in slots else MISS_FLAG | missed.index(pair) for pair in flat]
    popular = [all((t, int(row)) in slots for t, row in enumerate(sample)) for sample in ids]
    assert split.popular.tolist() == np.flatnonzero(popular).tolist()
    assert split.nonpopular.tolist() == np.flatnonzero(~np.array(popular)).tolist()
    assert split.n_popular == sum(popular)
    assert (split.lookups, split.hits) == (ids.size, sum(pair in slots for pair in flat))
    return split


def test_misses_stay_unique_beyond_the_miss_list(device):
    rows = device.geometry.batch_samples
    device.register_table(hotrow.empty((rows, 4), np.float32))
    ids = np.random.default_rng(8).permutation(rows)[:, None]
    assert rows >= 2 * device.geometry.miss_entries
    check_split(device, ids, {})


def test_every_sample_popular_and_none(device, tables):
    ids = random_ids(30, 9)
    assert check_split(device, ids, {}).n_popular == 0
    rows = list(counts(ids))
    slots = dict(zip(rows, device.install(tuple(np.array(rows).T)).slots.tolist(), strict=True))
    assert check_split(device, ids, slots).n_popular == 30
    device.clear_directory()
    check_split(device, ids, {})


def test_install_refuses_what_does_not_fit(device):
    slots = device.geometry.slots
    table = device.register_table(hotrow.empty((2 * slots, 4), np.float32))
    rows = np.random.default_rng(5).choice(2 * slots, slots, replace=False)
    installed = device.install((table, rows))
    assert installed.entries + installed.refused == slots
    assert installed.refused > 0, "these rows must overfill some set"
    assert (installed.slots == NO_SLOT).sum() == installed.refused
    assert len(np.unique(installed.slots)) == installed.entries + 1


def test_partitions_keep_tables_apart(device):
    for part in range(2):
        weights = hotrow.empty((200, 4 << part), np.float32)
        device.register_table(weights, partition=(part, 2))
    slots = [set(device.install((table, np.arange(64))).slots.tolist()) - {NO_SLOT}
             for table in device.tables]
    assert not slots[0] & slots[1]
    per_choice = device.geometry.slots // device.geometry.directory_choices
    for part, used in enumerate(slots):
        assert {slot % per_choice * 2 // per_choice for slot in used} == {part}


def test_lists_may_be_empty(device, tables):
    nothing = hotrow.RowList(np.empty(0, np.uint32), np.empty(0, np.uint32))
    assert len(device.install(nothing).slots) == 0
    assert len(device.remove(nothing).slots) == 0
    assert device.gather(nothing).shape == (0, 8)
    assert "INSTALL" not in device.statistics
