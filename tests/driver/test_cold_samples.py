"""Why samples are cold, against loops over what the card answered."""

import hotrow
import numpy as np
import pytest
from hotrow import Batch, BatchError

from tests.driver.conftest import ROWS


def by_hand(batch, split):
    """(samples, columns) of missed lookups, and lookups of each column."""
    missed = np.zeros((batch.samples, batch.table_count), int)
    lookups = np.zeros(batch.table_count, int)
    for position, slot in enumerate(split.slots):
        sample, column = batch.locate(position)
        lookups[column] += 1
        missed[sample, column] += bool(slot & hotrow.MISS_FLAG)
    return missed, lookups


@pytest.mark.parametrize("feature_major", [False, True], ids=["samples", "features"])
@pytest.mark.parametrize("jagged", [False, True], ids=["dense", "jagged"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_miss_is_counted(device, tables, jagged, feature_major, seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, ROWS, (90, 3))
    if jagged:
        lengths = rng.integers(0, 3, 90 * 3)
        column = np.repeat(np.arange(270) // 90 if feature_major else np.arange(270) % 3, lengths)
        batch = Batch.jagged(rng.integers(0, np.take(ROWS, column)), lengths, 90,
                             feature_major=feature_major)
    else:
        batch = Batch.dense(ids.T if feature_major else ids, feature_major=feature_major)
    device.observe(ids)
    device.install(device.harvest(40))
    split = device.split(batch)
    cold, (missed, lookups) = hotrow.why_cold(batch, split), by_hand(batch, split)
    assert cold.lookups.tolist() == lookups.tolist()
    assert cold.misses.tolist() == missed.sum(axis=0).tolist()
    assert cold.samples.tolist() == (missed > 0).sum(axis=0).tolist()
    assert cold.alone.tolist() == [
        sum(1 for row in missed if row[column] and row.sum() == row[column])
        for column in range(3)]
    assert cold.by_misses[0] == split.n_popular
    assert cold.by_one == np.count_nonzero(missed.sum(axis=1) == 1) > 0
    assert cold.by_misses.sum() == 90


def test_all_popular(device, tables):
    device.install(([0, 1, 2], [5, 5, 5]))
    ids = np.full((4, 3), 5)
    cold = hotrow.why_cold(ids, device.split(ids))
    assert (cold.by_one, cold.by_misses.tolist(), cold.misses.tolist()) == (0, [4], [0, 0, 0])


def test_one_sample_with_a_single_miss(device, tables):
    device.install(([0, 1, 2], [5, 5, 5]))
    ids = np.full((4, 3), 5)
    ids[2, 1] = 6
    cold = hotrow.why_cold(ids, device.split(ids))
    assert (cold.by_one, cold.by_misses.tolist(), cold.alone.tolist()) == (1, [3, 1], [0, 1, 0])


def test_a_split_of_another_batch(device, tables):
    split = device.split(np.zeros((4, 3), int))
    with pytest.raises(BatchError, match="15 ids of 5 samples, but 12 of 4 were split"):
        hotrow.why_cold(np.zeros((5, 3), int), split)
