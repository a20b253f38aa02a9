"""A batch's bags by group of tables: the form in which stores look rows up."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch

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
        ids = getattr(self.bags, "checked_ids", None)
        ids = (self.bags.ids if ids is None else ids)[self.lookups]
        if self.bags.dense:
            return (ids.view(self.features, -1) + self.first[:, None]).view(-1)
        return ids + torch.repeat_interleave(self.first, torch.tensor(self.counts))


# Group, first rows, bags, lookups and counts of a segment.
_Span: TypeAlias = tuple[int, torch.Tensor, slice, slice, list[int]]


@dataclass(frozen=True, eq=False)
class Request:
    """Lookups of one batch, with every id checked."""

    bags: Bags  # sorted by group
    segments: list[Segment]
    order: list[int]  # feature of `source` at each place of `bags`
    source: Bags  # of the caller

    def weights_of(self, source: Bags) -> torch.Tensor | None:
        """Weights of equal Bags of the caller, sorted as `bags`: float32[n] or None."""
        return None if source.weights is None else source.columns(self.order).weights


class Grouping:
    """The group of each table, and its place in the group.

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
        self._rank = {number: place for place, number in enumerate(self.order)}
        # By tables and samples of the last dense batch.
        self._dense: dict[tuple[tuple[int, ...], int], tuple[list[int], list[_Span]]] = {}
        for index, group in enumerate(groups):
            for local, number in enumerate(group.numbers):
                self._group[number] = index
                self._first[number] = int(group.tables.first[local])

    def request(self, checked: Bags, source: Bags | None = None) -> Request:
        """Sort checked Bags by group: Request, for the caller's Bags `source`."""
        key = (checked.tables, checked.samples)
        if checked.dense and key in self._dense:
            order, spans = self._dense[key]
            bags = checked.columns(order)
        else:
            order = sorted(range(checked.features),
                           key=lambda each: self._rank[checked.tables[each]])
            bags = checked.columns(order)
            spans = list(self._spans(bags))
            if checked.dense:
                self._dense = {key: (order, spans)}
        segments = [Segment(group, bags, first, of_bags, lookups, len(counts), counts)
                    for group, first, of_bags, lookups, counts in spans]
        return Request(bags, segments, order, source or checked)

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
