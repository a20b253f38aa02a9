"""Maps of ids beside a model in plain Python: what must hold of them after every batch."""

import numpy as np
from hotrow.ids import IdMap
from hotrow.ids.log import EventLog, digest

from tests.support.ids_model import IdsModel


def pairs(ids, rows):
    return list(zip(ids.tolist(), rows.tolist(), strict=True))


class FollowedMap:
    """One map for each number of threads, beside the model.

    Parameters
    ----------
    policies : tuple
        Rows, admission, expiry and seed of an IdMap.
    threads : sequence of int
    pool : uint64[n]
        Ids that are looked up.
    path : Path
        File of the maps at a restart.

    Attributes
    ----------
    planned, looked_up : int
        Batches, and ids in them.
    peak : int
        Most ids that had a row.
    """

    def __init__(self, policies, threads, pool, path):
        self.maps = [IdMap(*policies, each) for each in threads]
        self.model, self.pool, self._path = IdsModel(*policies), pool, path
        self._keys, self.planned, self.looked_up, self.peak = pool.tolist(), 0, 0, 0
        self._row_of, self._id_of, self._last = {}, {}, {}  # by what the maps report

    def plan(self, ids):
        expected = self.model.plan(ids.tolist())
        batches = [each.plan(ids) for each in self.maps]
        self.planned, self.looked_up = self.planned + 1, self.looked_up + len(ids)
        for batch in batches:
            assert (batch.rows == expected[0]).all() and batch.number == self.planned
            assert (pairs(batch.admitted_ids, batch.admitted_rows),
                    pairs(batch.expired_ids, batch.expired_rows)) == expected[1:]
            assert batch.default_lookups == expected[0].count(0)
        self._follow(ids.tolist(), batches[0])
        self._check()

    def _follow(self, ids, batch):
        """No id is lost, none has two rows, no row has two ids, and none leaves in flight."""
        self._last.update(dict.fromkeys(ids, self.planned))
        for each, row in pairs(batch.expired_ids, batch.expired_rows):
            assert self._row_of.pop(each) == row and self._id_of.pop(row) == each
            assert self._last[each] <= self.maps[0].completed, "a row in flight expires"
        for each, row in pairs(batch.admitted_ids, batch.admitted_rows):
            assert self._row_of.setdefault(each, row) == row and row > 0
            assert self._id_of.setdefault(row, each) == each
        assert batch.rows.tolist() == [self._row_of.get(each, 0) for each in ids]

    def _check(self):
        first, model = self.maps[0], self.model
        held, rows = first.items()
        assert dict(pairs(held, rows)) == self._row_of == model.row_of
        assert len(held) == len(first) == len(self._id_of) <= model.cap
        assert first.counts(rows).tolist() == [model.count[each] for each in held.tolist()]
        found = [model.row_of.get(each, 0) for each in self._keys]
        for each in self.maps:
            assert (each.find(self.pool) == found).all() and len(each) == len(first)
            assert each.digest() == first.digest()
            assert (each.counts(rows) == first.counts(rows)).all()
        self.peak = max(self.peak, len(first))

    def done(self, batch):
        """Batches end in any order of these calls."""
        self.model.completed = max(self.model.completed, batch)
        for each in self.maps:
            each.done(batch)

    def restart(self, in_flight):
        """Save and load, with the batches in flight that there are, or none."""
        for place, each in enumerate(self.maps):
            each.save(self._path)
            self.maps[place] = IdMap.load(self._path, each.threads)
            if in_flight:
                self.maps[place].completed = self.model.completed
        self.model.completed = self.maps[0].completed

    def grow(self):
        for each in self.maps:
            self.model.rows = each.grow()
        self.model.cap, self.model.bar = self.model.rows - 1, 0

    def check_log(self):
        """The log is that of the map, and replays to it."""
        for each in self.maps:
            replayed = EventLog.replay(each.log.events())
            assert replayed == self._row_of
            ids, rows = np.array([*replayed], "u8"), np.array([*replayed.values()], "i8")
            assert digest(ids, rows) == each.digest()
