"""Which ids of a batch get rows, and which ids lose theirs: the policies of a map at work."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .index import MOST_COUNT, SKETCH_ROWS, Index
from .initial import mixed
from .log import EXPIRED, EventLog
from .policies import Expiry, LeastCount, Probability

_Freed: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.int64]]  # ids and rows

_ALL = (1 << 32) - 1
_AHEAD = 6  # 1/64 of the rows
# Memory that a batch needs for a moment: for each lookup, for each row of which some may expire,
# and for Python's objects.
_LOOKUP_BYTES, _EXPIRY_BYTES, _SPARE_BYTES = 256, 48, 2 << 20
_NONE = np.empty(0, np.uint64), np.empty(0, np.int64)


class Turnover:
    """Admits ids, and frees rows for them.

    Parameters
    ----------
    index : Index
    log : EventLog
        Gets the rows that are freed.
    admission : LeastCount or Probability, optional
    expiry : Expiry, optional
    seed : int
        Of the draws.

    Attributes
    ----------
    sketch : uint16[4, width]
        Counts of ids without a row, for LeastCount.
    bar : int
        Ids of higher counts get rows.
    """

    def __init__(self, index: Index, log: EventLog, admission: LeastCount | Probability | None,
                 expiry: Expiry | None, seed: int) -> None:
        self._index, self._log, self._seed = index, log, seed
        self._admission, self._expiry = admission, expiry
        width = admission.width if isinstance(admission, LeastCount) else 0
        self.sketch, self.bar = np.zeros((SKETCH_ROWS, width), np.uint16), 0

    def check_memory(self, lookups: int, batch: int) -> None:
        """Raise MemoryError unless there is memory for the arrays of a batch, before it begins."""
        octets, rule = _SPARE_BYTES + lookups * _LOOKUP_BYTES, self._expiry
        if rule is not None and (batch % rule.every == 0
                                 or self._cap() - self._index.used < lookups):
            octets += self._index.used * _EXPIRY_BYTES
        try:
            np.empty(octets, np.uint8)
        except MemoryError:
            raise MemoryError(f"a batch of {lookups} ids needs {octets >> 20} MiB for a moment: "
                              f"nothing changed; free memory, or use smaller batches") from None

    def admitted(self, batch: int, ids: NDArray[np.uint64], counts: NDArray[np.uint32]
                 ) -> tuple[NDArray[np.bool_], NDArray[np.uint32]]:
        """Whether each of distinct ids gets a row, and the count that the row begins with."""
        if self._admission is None:
            return np.ones(len(ids), bool), counts
        if isinstance(self._admission, LeastCount):
            every = self._admission.halve_every
            if every and batch % every == 0:
                self.sketch >>= 1
            counts = self._index.count(self.sketch, ids, counts)
            return counts >= self._admission.least, counts
        salt = mixed(np.array([self._seed], np.uint64) ^ mixed(np.array([batch], np.uint64)))
        return (mixed(ids ^ salt) >> np.uint64(11)) < self._admission.value * 2.0 ** 53, counts

    def expire(self, batch: int, done: int, counts: NDArray[np.uint32]) -> tuple[
            NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
        """Free the rows that a sweep frees, and those that admitted ids with these counts need,
        none of a batch after `done`: ids and rows, and which of the admitted ids get a row."""
        rule, swept, made = self._expiry, _NONE, _NONE
        by_count = rule is not None and rule.age is None and rule.below is not None
        if rule is not None and batch % rule.every == 0 and (rule.age or rule.below):
            before = max(0, batch - rule.age + 1) if rule.age else 0
            swept = self._freed(batch, done, before, rule.below or 0, by_count,
                                max(0, self._index.used - rule.floor))
            if rule.below:
                held = self._index.state["count"][:self._index.fresh]
                np.right_shift(np.minimum(held, MOST_COUNT), 1, out=held)
                self.bar = 0 if len(swept[1]) else self.bar >> 1
        room = max(0, self._cap() - self._index.used)
        if by_count and isinstance(self._admission, LeastCount):
            made, served = self._contest(batch, done, counts, room)
        else:
            lacking = len(counts) - room
            if rule is not None and lacking > 0:
                made = self._freed(batch, done, _ALL, 0, by_count, self._ahead(lacking))
            served = np.arange(min(len(counts), room + len(made[1])))
        return np.concatenate((swept[0], made[0])), np.concatenate((swept[1], made[1])), served

    def _contest(self, batch: int, done: int, counts: NDArray[np.uint32],
                 room: int) -> tuple[_Freed, NDArray[np.int64]]:
        """Free rows of lower counts for ids with these counts, the highest first, and say which of
        the ids get a row."""
        order = np.argsort(-counts.astype(np.int64), kind="stable")
        order = order[counts[order] > self.bar]
        served, others, made = order[:room], order[room:], _NONE
        if len(others):
            state = self._index.state[:self._index.fresh]
            held, last = state["count"], state["last"]
            high, low = counts[others], held[(last > 0) & (last <= done)]
            pairs = min(len(high), len(low))
            low = np.sort(np.partition(low, max(0, pairs - 1))[:pairs]) if pairs else low
            made = self._freed(batch, done, 0, int(high[0]), True,
                               self._ahead(int((high[:pairs] > low).sum())))
            self.bar = int(held[made[1][-1]] if len(made[1]) else
                           held[last > 0].min(initial=high[0]))
            others = others[high > self.bar][:len(made[1])]
        return made, np.sort(np.concatenate((served, others)))

    def _freed(self, batch: int, done: int, *arguments: Any) -> _Freed:
        """What `Index.expire` frees, which the log gets at once."""
        ids, rows = self._index.expire(done, *arguments)
        self._log.append(batch, EXPIRED, ids, rows)
        return ids, rows

    def _cap(self) -> int:
        cap, rule = len(self._index.state) - 1, self._expiry
        return cap if rule is None or rule.cap is None else min(cap, rule.cap)

    def _ahead(self, lacking: int) -> int:
        """Rows that a scan of all frees: a share of them ahead of the ids to come."""
        return max(lacking, self._cap() >> _AHEAD)
