"""Rows that several processes own: asked of their owners, and trained there."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import torch

from ...errors import Error
from ..features.bags import Bags
from ..features.configs import Places
from ..memory.rows import Rows
from ..store.base import Open, Placed, Request, Store
from ..store.micro_batches import same_bags

_BAG = 64  # ids that stand together as a bag, so that lengths take little of what a device reads


@dataclass(eq=False)
class Routed:
    """A batch whose ids are with the owners of their rows.

    Members
    -------
    request : Request
        What this rank looks up.
    asked : int64[u]
        Code of each row of it, once, by owner.
    at : int64[n]
        Which of them each lookup is.
    asked_of : int64[world]
        How many of them each rank owns.
    inner : Request
        What all ranks look up of this rank's rows.
    codes : int64[v]
        Code of each row of that, once for each rank that asks for it, by asking rank.
    codes_for : int64[world]
    inner_at : int64[m]
        Which of `codes` each inner lookup is.
    over : bool
        Every rank is done with the batch.
    """

    request: Request
    asked: torch.Tensor
    at: torch.Tensor
    asked_of: torch.Tensor
    inner: Request
    codes: torch.Tensor
    codes_for: torch.Tensor
    inner_at: torch.Tensor
    open: Open = field(default_factory=Open)
    over: bool = False


class ShardedStore(Store):
    """Before every rank's own store, which has the rows that the rank owns.

    A lookup goes to the owner of its row, repeated ones too, so that the owner's device counts what
    all ranks look up; a row comes back once for each rank that asks. Every call but `prefetch` of
    nothing, `flush`, `abandon` and `close` is made by all ranks together, in one order.

    Parameters
    ----------
    inner : Store
        Of `sharding.shards`.
    sharding : Sharding
    ranks : Ranks
    """

    def __init__(self, inner, sharding, ranks):
        super().__init__(sharding.spans)
        self.inner, self.sharding, self.ranks = inner, sharding, ranks
        self._places = Places(sharding.shards)
        self._starts = torch.from_numpy(_starts(sharding))
        self._coming, self._taken = deque(), deque()

    def __getattr__(self, name):
        """Slots, figures, stages and the like are those of the rank's own store."""
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def waiting(self):
        return len(self._coming)

    def prefetch(self, request):
        routed = self.route(request)
        self.inner.prefetch(routed.inner)
        self._coming.append(routed)

    def take(self, request):
        if not self._coming:
            self.prefetch(request)
        routed = self._coming.popleft()
        if routed.request is not request and not same_bags(routed.request.bags, request.bags):
            raise Error(f"a batch of {len(request.bags.ids)} ids is not the one of "
                        f"{len(routed.request.bags.ids)} that was prefetched in its place: batches "
                        f"train in the order of prefetch()")
        placed, opened = self.inner.take(routed.inner)
        opened.add(routed)
        self._taken.append(routed)
        return self._bring(routed, placed), routed.open

    def look(self, request):
        routed = self.route(request)
        return self._bring(routed, self.inner.look(routed.inner))

    def read(self, group, flat):
        raise Error("a row of another process is read by a lookup of all ranks: call the "
                    "collection in eval(), or table() for all rows of a table")

    def apply(self, group, flat, sums, rule, sound=None):
        """Add the ranks' gradients of a row in rank order, divide by the ranks, and update."""
        owner, code = self.sharding.route(group, flat)
        key, order = torch.sort(owner * self.sharding.codes + code)
        counts = torch.bincount(owner, minlength=self.ranks.world)
        codes, theirs = self.ranks.exchange(key % self.sharding.codes, counts)
        values = self.ranks.answer(sums[order], counts, theirs)
        union = torch.unique(codes)
        total = values.new_zeros(len(union), values.shape[1])
        for rows, part in zip(codes.split(theirs.tolist()), values.split(theirs.tolist()),
                              strict=True):
            total[torch.searchsorted(union, rows)] += part
        if len(union):
            self.inner.apply(group, union - int(self.sharding.first[group]),
                             total / self.ranks.world, rule)

    def settle(self, held):
        """Let go of the batches that are over at every rank; of none where gradients are `held`."""
        if not self._taken:
            return
        over = 0
        while not held and over < len(self._taken) and self._taken[over].open.over:
            over += 1
        for _ in range(self.ranks.least(over)):
            self._taken.popleft().over = True
        self.inner.finish()

    def finish(self):
        self.settle(False)

    def flush(self):
        self.inner.flush()

    def reset(self):
        self.inner.reset()

    def abandon(self):
        self._coming.clear()
        self.inner.abandon()

    def close(self):
        self.inner.close()

    def route(self, request):
        """Tell the owners of all rows what is looked up: Routed."""
        world, codes = self.ranks.world, self.sharding.codes
        routes = [self.sharding.route(each.group, each.flat) for each in request.segments]
        owner = torch.cat([each for each, _ in routes])
        code = torch.cat([each for _, each in routes])
        order = torch.argsort(owner, stable=True)
        got, theirs = self.ranks.exchange(code[order], torch.bincount(owner, minlength=world))
        asked, at = torch.unique(owner * codes + code, return_inverse=True)
        source = torch.repeat_interleave(torch.arange(world), theirs)
        given, where = torch.unique(source * codes + got, return_inverse=True)
        inner, by_table = self._inner_request(got)
        return Routed(
            request, asked % codes, at,
            torch.bincount(torch.div(asked, codes, rounding_mode="floor"), minlength=world),
            inner, given % codes,
            torch.bincount(torch.div(given, codes, rounding_mode="floor"), minlength=world),
            where[by_table])

    def _inner_request(self, codes):
        """What is looked up at codes int64[m] of this rank, and which of them each lookup is."""
        table = torch.searchsorted(self._starts, codes, right=True) - 1
        order = torch.argsort(table, stable=True)
        counts = torch.bincount(table, minlength=len(self._starts))
        bags = max(1, -(-int(counts.max()) // _BAG))
        longest = -(-int(counts.max()) // bags)
        lengths = (counts[:, None] - longest * torch.arange(bags)).clamp(0, longest).ravel()
        ids = (codes - self._starts[table])[order]
        found = Bags(self._places.order, ids, lengths)
        return Request(found, self._places.segments(found)), order

    def _bring(self, routed, inner):
        """The rows that this rank looks up, from their owners: list of Placed."""
        where = torch.cat([each.at for each in inner]) if inner else routed.inner_at
        first = torch.empty(len(routed.codes), dtype=torch.int64)
        first[routed.inner_at] = where  # the same place for every lookup of a row
        here = {segment.group: each for segment, each in zip(
            routed.inner.segments, inner, strict=True)}
        placed = []
        for segment in routed.request.segments:
            asked, asked_of = self._of_group(segment.group, routed.asked, routed.asked_of)
            given, given_for = self._of_group(segment.group, routed.codes, routed.codes_for)
            with here[segment.group].lock:
                rows = here[segment.group].rows.weights[first[given]]
            rows = self.ranks.answer(rows, given_for, asked_of)
            among = asked.cumsum(0) - 1
            placed.append(Placed(Rows(rows), among[routed.at[segment.lookups]]))
        return placed

    def _of_group(self, group, codes, counts):
        """Which codes are a group's: bool[n]; and how many of those each rank's share holds."""
        low, high = self.sharding.first[group:group + 2]
        chosen = (codes >= int(low)) & (codes < int(high))
        rank = torch.repeat_interleave(torch.arange(len(counts)), counts)
        return chosen, torch.bincount(rank[chosen], minlength=len(counts))


def _starts(sharding):
    """Code of row 0 of each table, group after group: int64[tables]."""
    return np.concatenate([first + shard.tables.first for first, shard in zip(
        sharding.first, sharding.shards, strict=False)])
