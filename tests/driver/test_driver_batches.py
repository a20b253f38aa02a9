"""Every form of a batch, against the dense or hand-expanded one."""

from collections import Counter

import hotrow
import numpy as np
import pytest
from hotrow import Batch, BatchError, BatchFlag

from tests.driver.conftest import ROWS, counts, counts_of, random_ids

CARDS = ("model",)  # the host checks and converts

INTEGERS = (np.int32, np.uint32, np.int64, np.uint64)


def counted(device, batch):
    """What the counters hold after one batch."""
    device.clear_counters()
    seen = device.observe(batch)
    hot = device.harvest(200)
    assert seen.lookups == hot.count.sum()
    return counts_of(hot)


def random_bags(samples, seed):
    """[sample][table] -> ids of a bag, 0 to 4 of them."""
    rng = np.random.default_rng(seed)
    return [[rng.integers(rows, size=rng.integers(5)) for rows in ROWS] for _ in range(samples)]


def count_bags(bags):
    return Counter((t, int(row)) for sample in bags for t, bag in enumerate(sample) for row in bag)


def flat(bags):
    return np.concatenate(bags), np.array([len(bag) for bag in bags])


def by_table(bags):
    """The bags of each table: (indices, offsets) pairs."""
    for column in zip(*bags, strict=True):
        ids, lengths = flat(column)
        yield ids, np.cumsum(lengths) - lengths


@pytest.mark.parametrize("dtype", [*INTEGERS, np.int16, np.uint8])
@pytest.mark.parametrize("feature_major", [False, True])
def test_dense(device, tables, dtype, feature_major):
    ids = random_ids(37, seed=1).astype(dtype)
    given = np.ascontiguousarray(ids.T) if feature_major else ids
    batch = Batch.dense(given, feature_major=feature_major)
    assert (batch.samples, batch.table_count, batch.lookups) == (37, 3, 111)
    assert bool(batch.flags & BatchFlag.ID64) == (np.dtype(dtype).itemsize == 8)
    assert np.shares_memory(batch.ids, given) == (np.dtype(dtype).itemsize >= 4), "no needless copy"
    assert counted(device, batch) == counts(ids)


def test_dense_takes_strided_views_and_lists(device, tables):
    ids = random_ids(40, seed=2)
    assert counted(device, ids[::2]) == counts(ids[::2])
    assert counted(device, np.asfortranarray(ids)) == counts(ids)
    assert counted(device, ids.tolist()) == counts(ids)
    assert counted(device, ids.astype(">i4")) == counts(ids)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("feature_major", [False, True])
def test_jagged(device, tables, dtype, feature_major):
    bags = random_bags(25, seed=3)
    order = zip(*bags, strict=True) if feature_major else bags
    ids, lengths = flat([bag for group in order for bag in group])
    batch = Batch.jagged(ids.astype(dtype), lengths, 25, feature_major=feature_major)
    assert counted(device, batch) == count_bags(bags)


@pytest.mark.parametrize("kinds", [(np.int64, np.int32), (np.int32, np.uint64), (np.int64,) * 2])
@pytest.mark.parametrize("include_last", [False, True])
def test_offsets_of_embedding_bags(device, tables, kinds, include_last):
    bags = random_bags(25, seed=4)
    pairs = []
    for column, (indices, offsets) in enumerate(by_table(bags)):
        if include_last:
            offsets = np.append(offsets, len(indices))
        pairs.append((indices.astype(kinds[column % 2]), offsets.astype(kinds[-1])))
    batch = Batch.from_offsets(pairs, include_last_offset=include_last)
    assert batch.feature_major and batch.samples == 25
    assert counted(device, batch) == count_bags(bags)


def test_keyed_jagged(device, tables):
    bags = random_bags(25, seed=5)
    values, lengths = flat([bag for column in zip(*bags, strict=True) for bag in column])
    batch = Batch.from_keyed_jagged(values, lengths, ["t0", "t1", "t2"])
    assert counted(device, batch) == count_bags(bags)
    with pytest.raises(BatchError, match=r"no table named 'user'.*t0, t1, t2"):
        device.observe(Batch.from_keyed_jagged(values, lengths, ["t0", "t1", "user"]))


def test_some_of_the_tables(device, tables):
    ids = random_ids(20, seed=6)
    expected = {(t + 1, row): count for (t, row), count in counts(ids[:, 1:]).items()}
    for named in (tables[1:], ["t1", "t2"]):
        assert counted(device, Batch.dense(ids[:, 1:], tables=named)) == expected


@pytest.mark.parametrize("feature_major", [False, True])
def test_split_of_jagged_bags(device, tables, feature_major):
    bags = random_bags(30, seed=7)
    order = zip(*bags, strict=True) if feature_major else bags
    ids, lengths = flat([bag for group in order for bag in group])
    hot = [(t, row) for t in range(3) for row in range(ROWS[t] // 2 + 1)]
    device.install(tuple(np.array(hot).T))
    split = device.split(Batch.jagged(ids, lengths, 30, feature_major=feature_major))
    popular = [i for i, sample in enumerate(bags)
               if all((t, row) in hot for t, bag in enumerate(sample) for row in bag)]
    assert split.popular.tolist() == popular and 0 < len(popular) < 30
    assert sorted(split.order.tolist()) == list(range(30))


@pytest.mark.parametrize("first", [0, 16, 1])
def test_batches_in_a_registered_buffer_are_not_copied(device, tables, first):
    memory = hotrow.empty((64, 3), np.int32)
    memory[:] = random_ids(64, seed=8)
    buffer = device.register(memory, writable=False)
    pending = device.observe_async(memory[first:first + 32])
    assert buffer.uses == (first % 16 == 0), "read in place where that is a multiple of 64 bytes"
    assert pending.result().lookups == 96 and buffer.uses == 0
    assert counted(device, memory[first:]) == counts(memory[first:])
    bags = Batch.jagged(memory.reshape(-1)[::3], np.tile([1, 0, 0], 64), 64)
    assert counted(device, bags) == counts(memory[:, :1]), "every third id is no list in memory"


def test_ids_may_change_once_submitted(device, tables):
    ids = random_ids(30, seed=9)
    expected = counts(ids)
    pending = device.observe_async(ids)
    ids[:] = 0
    pending.result()
    hot = device.harvest(200)
    assert counts_of(hot) == expected


def test_longest_bag(device, tables):
    ids = np.arange(65535, dtype=np.uint32) % ROWS[0]
    batch = Batch.jagged(ids, [65535, 0, 0], 1)
    assert device.observe(batch).lookups == 65535


@pytest.mark.parametrize("make, message", [
    (lambda: Batch.dense(np.empty((0, 3), np.int64)), "empty batch"),
    (lambda: Batch.dense([]), "empty batch"),
    (lambda: Batch.jagged([], [0, 0, 0], 1), "empty batch: no ids in 1 samples of 3 columns"),
    (lambda: Batch.jagged([], [], 0), "empty batch: no samples"),
    (lambda: Batch.dense(np.zeros(6, int)), r"expected ids as \[samples, tables\].*\(6,\)"),
    (lambda: Batch.dense(np.zeros((2, 3))), "must be integers .*not float64.*non-integer"),
    (lambda: Batch.dense([[1, 2], [3]]), "ids must be a rectangular array"),
    (lambda: Batch.dense([[2 ** 70]]), "must be integers .*not object"),
    (lambda: Batch.dense([["1"]]), "must be integers"),
    (lambda: Batch.dense([[True]]), "must be integers .*not bool"),
    (lambda: Batch.jagged([1, 2], [1, 1, 1], 1), "sum to 3, but there are 2 ids"),
    (lambda: Batch.jagged([1, 2], [1, 1, 0], 2), "one length per sample and table, got 3 .* 2 s"),
    (lambda: Batch.jagged([1, 2], [3, -1], 1), "not -1 .sample 0, column 1"),
    (lambda: Batch.jagged(np.zeros(70000, int), [0, 0, 70000, 0], 2), "65535 ids, not 70000 "
     ".sample 1, column 0"),
    (lambda: Batch.jagged(np.zeros(70000, int), [0, 0, 70000, 0], 2, feature_major=True),
     "70000 .sample 0, column 1"),
    (lambda: Batch.from_offsets([]), "same number of bags, got no table"),
    (lambda: Batch.from_offsets([([1, 2], [0, 1]), ([1], [0])]), "same number of bags, got 2, 1"),
    (lambda: Batch.from_offsets([([1, 2], [1, 2])]), "offsets of column 0 must start at 0"),
    (lambda: Batch.from_offsets([([1, 2], [0, 2, 1])]), "not decrease"),
    (lambda: Batch.from_offsets([([1, 2], [0, 3])]), "end within its 2 indices"),
    (lambda: Batch.from_offsets([([1, 2], [0, 1])], include_last_offset=True), "end within its 2"),
    (lambda: Batch.from_offsets([([1.5], [0])]), "indices of column 0 must be integers"),
    (lambda: Batch.from_keyed_jagged([1], [1, 0, 0], ["a", "b"]), "3 lengths .* 2 keys"),
])
def test_malformed_batches_teach(make, message):
    with pytest.raises(BatchError, match=message):
        make()


@pytest.mark.parametrize("feature_major", [False, True])
def test_positions_as_sample_and_column(feature_major):
    lengths = np.array([2, 0, 1, 0, 3, 1])  # of 3 samples and 2 tables
    batch = Batch.jagged(np.arange(7), lengths, 3, feature_major=feature_major)
    bags = np.repeat(np.arange(6), lengths)
    for position, bag in enumerate(bags):
        expected = (bag % 3, bag // 3) if feature_major else (bag // 2, bag % 2)
        assert batch.locate(position) == expected
