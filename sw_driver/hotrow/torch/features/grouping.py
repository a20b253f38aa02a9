"""A batch's bags by group of tables: the form in which stores look rows up."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from ...system.forks import cached_property
from .bags import Bags
from .configs import TableGroup


@dataclass(frozen=True, eq=False)
class Segment:
    """The part of a batch's bags that looks up in one group."""

    group: int
    bags: Bags  # of the batch, sorted by group
    first: torch.Tensor  # int64[features]: flat row of row 0 of each feature's table
    span: slice  # of the batch's bags
    lookups: slice  # of the batch's lookups
    features: int
    counts: list[int]  # lookups of each feature

    @property
    def tables(self) -> tuple[int, ...]:
        """Number of the table of each feature."""
        first = self.span.start // max(1, self.bags.samples)
        return self.bags.tables[first:first + self.features]

    @property
    def count(self) -> int:
        """Lookups."""
        return int(self.lookups.stop - self.lookups.start)

    @cached_property
    def lengths(self) -> torch.Tensor:
        """Lookups of each bag: int64[bags]."""
        return self.bags.lengths[self.span]

    @cached_property
    def flat(self) -> torch.Tensor:
        """Flat row of each lookup: int64[n]."""
        ids = self.bags.ids[self.lookups]
        if self.bags.dense:
            return (ids.view(self.features, -1) + self.first[:, None]).view(-1)
        flat = torch.empty(len(ids), dtype=torch.int64)
        for part, own, first in zip(flat.split(self.counts), ids.split(self.counts),
                                    self.first.tolist(), strict=True):
            part.copy_(own).add_(first)
        return flat

    def flat_rows(self) -> torch.Tensor:
        """`flat`, for callers who may need it later."""
        return self.flat


# Group, first rows, bags, lookups and counts of a segment.
_Span: TypeAlias = tuple[int, torch.Tensor, slice, slice, list[int]]


@dataclass(frozen=True, eq=False)
class Request:
    """Lookups of one batch, with every id checked."""

    bags: Bags  # by group, with int32 ids where every row of their tables has one
    segments: list[Segment]
    order: list[int]  # feature of `source` at each place of `bags`
    source: Bags  # of the caller

    def weights_of(self, source: Bags) -> torch.Tensor | None:
        """Weights of equal Bags of the caller, sorted as `bags`: float32[n] or None."""
        return source.weights_in(self.order)


class Grouping:
    """The group of each table, its place in the group, and its rows.

    Parameters
    ----------
    groups : sequence of TableGroup

    Attributes
    ----------
    order : tuple of int
        Tables, group after group.
    """

    def __init__(self, groups: Sequence[TableGroup]):
        self.order = tuple(number for group in groups for number in group.numbers)
        self._group: dict[int, int] = {}
        self._first: dict[int, int] = {}
        self._rows: dict[int, int] = {}
        self._rank = {number: place for place, number in enumerate(self.order)}
        # By tables of the last batch, their order and their rows.
        self._orders: dict[tuple[int, ...], tuple[list[int], torch.Tensor]] = {}
        # By tables and samples of the last dense batch.
        self._dense: dict[tuple[tuple[int, ...], int], list[_Span]] = {}
        for index, group in enumerate(groups):
            for local, number in enumerate(group.numbers):
                self._group[number] = index
                self._first[number] = int(group.tables.first[local])
                self._rows[number] = int(group.tables.cardinalities[local])

    def request(self, bags: Bags, source: Bags | None = None) -> Request | None:
        """Check Bags and put them in the order of the groups, for the caller's Bags `source`.

        Returns
        -------
        Request, or None if an id is no row of its table
        """
        if bags.tables not in self._orders:
            order = sorted(range(bags.features), key=lambda each: self._rank[bags.tables[each]])
            self._orders = {bags.tables: (order, torch.tensor(
                [self._rows[bags.tables[each]] for each in order], dtype=torch.int64))}
        order, rows = self._orders[bags.tables]
        grouped = bags.grouped(order, rows)
        if grouped is None:
            return None
        key = (bags.tables, bags.samples)
        spans = self._dense.get(key) if bags.dense else None
        if spans is None:
            spans = list(self._spans(grouped))
            if bags.dense:
                self._dense = {key: spans}
        segments = [Segment(group, grouped, first, of_bags, lookups, len(counts), counts)
                    for group, first, of_bags, lookups, counts in spans]
        return Request(grouped, segments, order, source or bags)

    def _spans(self, bags: Bags) -> Iterator[_Span]:
        """Group, first rows, bags, lookups and counts of each run of features of one group."""
        lookup, feature = 0, 0
        counts, samples = bags.counts, bags.samples
        while feature < bags.features:
            group, last = self._group[bags.tables[feature]], feature
            while last < bags.features and self._group[bags.tables[last]] == group:
                last += 1
            span = slice(lookup, lookup + sum(counts[feature:last]))
            first = torch.tensor([self._first[table] for table in bags.tables[feature:last]])
            yield (group, first, slice(feature * samples, last * samples), span,
                   counts[feature:last])
            lookup, feature = span.stop, last
