"""MissTable against a table of lists, and its speed."""

import dataclasses
import time

import numpy as np
import pytest
from hotrow_rtl.config import MISS_WAYS, preset
from hotrow_rtl.lookup.hashing.row_location import join_key, split_key
from hotrow_sim.golden.lookup.miss_table import MissTable

TINY = preset("tiny")
CONFIGS = [
    TINY,
    dataclasses.replace(TINY, name="two-sets", miss_entries=32),
    dataclasses.replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256, directory_sets=256,
                        miss_entries=1024),
    preset("alveo-u55c"),
]


def by_lists(config, keys):
    """(index, listed, kept, repeated, place) of each key, one at a time."""
    sets, numbers, count = {}, {}, 0
    for key in map(int, keys):
        bank, rest = split_key(config, key)
        number = rest % config.miss_sets
        ways = sets.setdefault((bank, number), [])
        repeated = key in ways
        if not repeated and len(ways) < MISS_WAYS:
            ways.append(key)
        kept = key in ways
        if not repeated:
            numbers[key] = count
            count += 1
        at = number * MISS_WAYS + ways.index(key) if kept else None
        yield numbers[key], not repeated, kept, repeated, at


def keys_of(config, rows, count, seed):
    """`count` keys of at most `rows` rows over all tables."""
    rng = np.random.default_rng(seed)
    pool = rng.integers(0, 1 << config.key_width, rows, np.uint64)
    return pool[rng.integers(0, rows, count)]


def check(config, keys):
    table = MissTable(config)
    index, listed, kept = table.number(keys)
    assert (kept == table.find(keys)[0]).all()
    kept, repeated, at = table.find(keys)
    want = list(by_lists(config, keys))
    places = [place if keeps else None
              for place, keeps in zip(at.tolist(), kept.tolist(), strict=True)]
    got = zip(index.tolist(), listed.tolist(), kept.tolist(), repeated.tolist(), places,
              strict=True)
    for number, (found, expected) in enumerate(zip(got, want, strict=True)):
        assert found == expected, f"{number=}, key {keys[number]}"
    # The list has each owner's row at its index.
    assert (keys[listed][index] == keys).all()
    return kept, listed


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("rows, count", [(1, 20), (20, 7), (40, 300), (300, 600), (3000, 3000)])
def test_equals_lists(config, rows, count):
    kept, listed = check(config, keys_of(config, rows, count, seed=rows))
    if rows >= 300 and config.miss_entries <= 256:
        assert 0 < kept.mean() < 1 and 0 < listed.mean() < 1


def test_empty_batch():
    for part in (*MissTable(TINY).number([]), *MissTable(TINY).find([])):
        assert part.shape == (0,)


def test_one_set_keeps_its_first_rows():
    rest = np.arange(MISS_WAYS + 2, dtype=np.uint64) * np.uint64(TINY.miss_sets) + np.uint64(3)
    keys = join_key(TINY, np.uint64(5), rest)
    turns = [0, 1, 2, 0, 3, 2, 1, 3, 0]
    index, listed, _ = MissTable(TINY).number(keys[turns])
    assert listed.tolist() == [True, True, True, False, True, True, False, True, False]
    assert index.tolist() == [0, 1, 2, 0, 3, 4, 1, 5, 0]
    check(TINY, keys[turns])


def test_a_long_batch_is_quick():
    keys = keys_of(preset("ecp5"), 30_000, 50_000, seed=1)
    start = time.perf_counter()
    MissTable(preset("ecp5")).number(keys)
    assert time.perf_counter() - start < 0.5  # tens of milliseconds on an idle machine
