"""Rows that several processes own: their owners look them up and train them."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from ...contract.errors import Error
from ...system.interrupts import uninterrupted
from ..features.bags import Bags
from ..features.grouping import Grouping, Request
from ..memory.rows import Rows
from ..optim.gradients import LocatedRows, Staged, StagedGradients
from ..optim.rules import Rule
from ..store.base import OwnStore, TakenRows
from ..store.cached import CachedStore
from ..store.in_flight import PendingBackward
from ..store.statistics import CacheStatistics
from .ranks import Ranks
from .sharding import Sharding

_AskedRows = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

_BAG = 64  # ids that form a bag of the inner batch, so that a device reads few lengths


@dataclass(eq=False)
class RoutedBatch:
    """A batch whose ids were sent to the owners of their rows."""

    request: Request  # lookups of this rank
    asked: torch.Tensor  # int64[u]: code of each of its rows, once, by owner
    at: torch.Tensor  # int64[n]: index in `asked` of each lookup
    asked_of: torch.Tensor  # int64[world]: rows of `asked` that each rank owns
    inner: Request  # lookups of all ranks in this rank's rows
    codes: torch.Tensor  # int64[v]: code of each of their rows, once per asking rank, by rank
    codes_for: torch.Tensor  # int64[world]: rows of `codes` for each rank
    inner_at: torch.Tensor  # int64[m]: index in `codes` of each inner lookup
    pending: PendingBackward = field(default_factory=PendingBackward)
    done: bool = False  # at every rank


class ShardedStore:
    """Sends lookups and gradients to the ranks that own the rows.

    A lookup goes to the owner of its row, repeated ones too, so that the owner's device counts the
    lookups of all ranks; a row comes back once for each rank that asks. All ranks make the same
    calls in the same order, `flush`, `abandon`, `close` and `prefetch` of nothing aside. `inner` is
    this rank's store of `sharding.shards`.
    """

    several_ranks = True

    def __init__(self, inner: OwnStore, sharding: Sharding, ranks: Ranks):
        self.groups, self.slot_memory = tuple(sharding.spans), inner.slot_memory
        self.inner, self.sharding, self.ranks = inner, sharding, ranks
        self._grouping = Grouping(self.sharding.shards)
        self._starts = torch.from_numpy(_starts(self.sharding))
        self._coming: deque[RoutedBatch] = deque()
        self._taken: deque[RoutedBatch] = deque()

    @property
    def card(self) -> CachedStore | None:
        return self.inner.card

    @property
    def ahead(self) -> int:
        return self.inner.ahead

    @property
    def on_card(self) -> Collection[str]:
        return self.inner.on_card

    @property
    def statistics(self) -> CacheStatistics | None:
        return self.inner.statistics

    def upload(self) -> None:
        self.inner.upload()

    @property
    def waiting(self) -> int:
        return len(self._coming)

    def coming(self, bags: Bags | None = None) -> Request | None:
        return self._coming[0].request if self._coming else None

    def open_batches(self) -> Iterator[TakenRows]:
        return iter(())

    def prefetch(self, request: Request) -> None:
        with uninterrupted():
            routed = self.route(request)
            try:
                self.ranks.agree(lambda: self.inner.prefetch(routed.inner), "rows of a batch were "
                                 "not fetched, because of the card")
            except BaseException:
                self.abandon()  # at every rank
                raise
            self._coming.append(routed)

    def take(self, request: Request,
             begin: Callable[[], None] | None = None) -> tuple[list[LocatedRows], PendingBackward]:
        if not self._coming:
            self.prefetch(request)
        routed = self._coming.popleft()

        def take() -> list[_AskedRows]:
            located, pending = self.inner.take(routed.inner, begin)
            pending.add(routed)
            return self._asked_rows(routed, located)

        with uninterrupted():
            try:
                rows = self.ranks.agree(take, "a batch was not taken, because of the card")
            except BaseException:
                self.abandon()  # at every rank
                raise
            self._taken.append(routed)
            return self._bring(routed, rows), routed.pending

    def look(self, request: Request) -> list[LocatedRows]:
        with uninterrupted():
            routed = self.route(request)
            return self._bring(routed, self.ranks.agree(
                lambda: self._asked_rows(routed, self.inner.look(routed.inner)),
                "rows were not read, because of the card"))

    def apply_bags(self, group: int, staged: Staged, rule: Rule) -> NoReturn:
        raise Error("cold rows of several processes are gathered")

    def _mean(self, group: int, flat: torch.Tensor,
              sums: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the ranks' gradients of a row in rank order, and divide by the ranks: the own rows
        int64[u], and float32[u, D]."""
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
        return union - int(self.sharding.first[group]), total / self.ranks.world

    def _update(self, means: Sequence[tuple[int, torch.Tensor, torch.Tensor]],
                rule: Rule) -> None:
        """Update own rows by (group, rows, gradients) of each group."""
        def update() -> None:
            for group, rows, sums in means:
                if len(rows):
                    self.inner.apply(group, rows, sums, rule)

        self.ranks.agree(update, "the step of the last batch did not reach all rows")

    def step(self, staged: Sequence[StagedGradients], rule: Rule,
             finite: torch.Tensor | None = None) -> Callable[[], None]:
        """What all ranks have to send is there before a row changes."""
        means = []
        for group, each in enumerate(staged):
            rows, sums = each.rows, each.values
            if sums is None:
                rows, sums = rows[:0], torch.empty(
                    0, self.groups[group].kind.dim, dtype=torch.float32)
            means.append((group, *self._mean(group, rows, sums)))
        for each in staged:
            each.clear()
        return lambda: self._update(means, rule)

    def finish(self, holds_gradients: bool = False) -> None:
        """Release the batches that are done at every rank."""
        if not self._taken:
            return
        done = 0
        while not holds_gradients and done < len(self._taken) and self._taken[done].pending.done:
            done += 1
        for _ in range(self.ranks.least(done)):
            self._taken.popleft().done = True
        self.inner.finish()

    def observe(self, request: Request) -> None:
        routed = self.route(request)
        self.ranks.agree(lambda: self.inner.observe(routed.inner),
                         "lookups were not counted, because of the card")

    def flush(self) -> None:
        self.inner.flush()

    def reset(self) -> None:
        self.inner.reset()

    def reload(self) -> None:
        self.inner.reload()

    def abandon(self) -> None:
        self._coming.clear()
        self.inner.abandon()

    def close(self) -> None:
        self.inner.close()

    def route(self, request: Request) -> RoutedBatch:
        """Send a request's lookups to the owners of the rows: RoutedBatch."""
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
        return RoutedBatch(
            request, asked % codes, at,
            torch.bincount(torch.div(asked, codes, rounding_mode="floor"), minlength=world),
            inner, given % codes,
            torch.bincount(torch.div(given, codes, rounding_mode="floor"), minlength=world),
            where[by_table])

    def _inner_request(self, codes: torch.Tensor) -> tuple[Request, torch.Tensor]:
        """The lookups of codes int64[m] of this rank: Request, index in `codes` of each lookup."""
        table = torch.searchsorted(self._starts, codes, right=True) - 1
        order = torch.argsort(table, stable=True)
        counts = torch.bincount(table, minlength=len(self._starts))
        bags = max(1, -(-int(counts.max()) // _BAG))
        longest = -(-int(counts.max()) // bags)
        lengths = (counts[:, None] - longest * torch.arange(bags)).clamp(0, longest).ravel()
        ids = (codes - self._starts[table])[order]
        request = self._grouping.request(Bags(self._grouping.order, ids, lengths))
        assert request is not None, "a code is that of a row"
        return request, order

    def _asked_rows(self, routed: RoutedBatch, inner: Sequence[LocatedRows]) -> list[_AskedRows]:
        """The rows that ranks look up here, of each segment: list of (rows for each rank one after
        the other, their numbers, whether the segment has each code of `asked`, their numbers)."""
        where = torch.cat([each.at for each in inner]) if inner else routed.inner_at
        first = torch.empty(len(routed.codes), dtype=where.dtype)
        first[routed.inner_at] = where  # every lookup of a row has the same place
        here = {segment.group: each for segment, each in zip(
            routed.inner.segments, inner, strict=True)}
        found = []
        for segment in routed.request.segments:
            given, given_for = self._of_group(segment.group, routed.codes, routed.codes_for)
            with here[segment.group].lock:
                rows = here[segment.group].rows.weights[first[given]]
            found.append((rows, given_for, *self._of_group(
                segment.group, routed.asked, routed.asked_of)))
        return found

    def _bring(self, routed: RoutedBatch, found: list[_AskedRows]) -> list[LocatedRows]:
        """The rows that this rank looks up, from their owners: list of LocatedRows."""
        located = []
        for segment, (rows, given_for, asked, asked_of) in zip(
                routed.request.segments, found, strict=True):
            rows = self.ranks.answer(rows, given_for, asked_of)
            among = asked.cumsum(0) - 1
            located.append(LocatedRows(Rows(rows), among[routed.at[segment.lookups]]))
        return located

    def _of_group(self, group: int, codes: torch.Tensor,
                  counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes of a group, bool[n], and their number in each rank's share."""
        low, high = self.sharding.first[group:group + 2]
        chosen = (codes >= int(low)) & (codes < int(high))
        rank = torch.repeat_interleave(torch.arange(len(counts)), counts)
        return chosen, torch.bincount(rank[chosen], minlength=len(counts))


def _starts(sharding: Sharding) -> NDArray[np.int64]:
    """Code of row 0 of each table, group after group: int64[tables]."""
    return np.concatenate([first + shard.tables.first for first, shard in zip(
        sharding.first, sharding.shards, strict=False)])
