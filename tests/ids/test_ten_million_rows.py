"""A map of ten million rows against the model in plain Python, whose dict has as many ids."""

import hashlib

import numpy as np
import pytest
from hotrow.ids import Expiry, IdMap, Probability
from hotrow.ids.log import EventLog, digest

from tests.ids.followed_map import pairs
from tests.support.ids_model import IdsModel

ROWS, BATCHES, NEW, LOOKUPS = 10_000_001, 14, 1_048_000, 1_248_000
POLICIES = ROWS, Probability(0.8), Expiry(age=12, floor=9_000_000), 1 << 60
RESTART = 9


def schedule():
    """Ids of each batch, of which some occurred before, and the batch that is done after it."""
    draw = np.random.default_rng(0)
    for number in range(BATCHES):
        ids = np.arange(number * NEW, number * NEW + LOOKUPS - 100_000, dtype=np.uint64)
        again = draw.integers(0, number * NEW + 1, 100_000, np.uint64)
        ids = draw.permutation(np.concatenate((ids, again)))
        yield (ids + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15), int(
            draw.integers(max(0, number - 4), number + 2))


class Seen:
    """One digest of all that a map answered."""

    def __init__(self):
        self.lookups, self._digest = 0, hashlib.sha256()

    def add(self, batch):
        self.lookups += batch.rows.size
        for part in (batch.rows, batch.admitted_ids, batch.admitted_rows, batch.expired_ids,
                     batch.expired_rows):
            self._digest.update(part.tobytes())

    def value(self, ids):
        return self.lookups, self._digest.hexdigest(), ids.digest()


def check(ids, model):
    """No id is lost or has two rows, no row has two ids, and counts agree."""
    keys = np.fromiter(model.row_of, np.uint64, len(model.row_of))
    rows = np.fromiter(model.row_of.values(), np.int64, len(keys))
    assert len(np.unique(rows)) == len(rows) == len(ids) <= model.cap and (rows > 0).all()
    assert np.array_equal(ids.find(keys), rows)
    held, places = ids.items()
    assert len(np.unique(held)) == len(held) == len(keys)
    assert np.array_equal(held, keys[np.argsort(rows)]) and np.array_equal(places, np.sort(rows))
    counts = np.fromiter(map(model.count.__getitem__, model.row_of), np.int64, len(keys))
    assert np.array_equal(ids.counts(rows), counts)
    assert digest(keys, rows) == ids.digest()


def run(threads, path, model=None):
    """A map after all batches, beside a model if there is one, what it answered, and the loads at
    which it was checked."""
    ids, seen, loads = IdMap(*POLICIES, threads), Seen(), []
    for number, (given, done) in enumerate(schedule()):
        batch = ids.plan(given)
        seen.add(batch)
        ids.done(done)
        if number == RESTART:
            ids.save(path)
            ids = IdMap.load(path, threads)
            path.unlink()
        if model is not None:
            rows, admitted, expired = model.plan(given.tolist())
            assert np.array_equal(batch.rows, rows), number
            assert pairs(batch.admitted_ids, batch.admitted_rows) == admitted, number
            assert pairs(batch.expired_ids, batch.expired_rows) == expired, number
            model.completed = ids.completed
            load = len(ids) / (ROWS - 1)
            if number in (RESTART, BATCHES - 1) or (load >= 0.95 and not loads):
                check(ids, model)
                loads.append(load)
    return ids, seen, loads


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_ten_million_rows(tmp_path):
    path, model = tmp_path / "map.npz", IdsModel(*POLICIES)
    ids, seen, loads = run(1, path, model)
    assert (seen.lookups, max(loads)) == (BATCHES * LOOKUPS, 1.0), loads
    del model
    replayed = EventLog.replay(ids.log.events())
    assert digest(np.fromiter(replayed, np.uint64, len(replayed)),
                  np.fromiter(replayed.values(), np.int64, len(replayed))) == ids.digest()
    del replayed
    expected = seen.value(ids)
    for threads in (2, 7):
        other, found, _ = run(threads, path)
        assert found.value(other) == expected, threads
