"""A batch's bags by group of tables: the form in which stores look rows up."""

from dataclasses import dataclass

import torch

from .bags import Bags


@dataclass(frozen=True, eq=False)
class Segment:
    """The part of a batch's bags that looks up in one group."""

    group: int
    flat: torch.Tensor  # int64[n]: flat row of each lookup
    lengths: torch.Tensor  # int64[bags]
    lookups: slice  # of the batch's lookups
    features: int


@dataclass(frozen=True, eq=False)
class Request:
    """Lookups of one batch, with every id checked."""

    bags: Bags  # sorted by group
    segments: list[Segment]
    order: list[int]  # feature of `source` at each place of `bags`
    source: Bags  # of the caller

    def weights_of(self, source):
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

    def __init__(self, groups):
        self.order = tuple(number for group in groups for number in group.numbers)
        self._group, self._first = {}, {}
        for index, group in enumerate(groups):
            for local, number in enumerate(group.numbers):
                self._group[number] = index
                self._first[number] = int(group.tables.first[local])

    def request(self, checked, source=None):
        """Sort checked Bags by group: Request, for the caller's Bags `source`."""
        rank = {number: place for place, number in enumerate(self.order)}
        order = sorted(range(checked.features), key=lambda each: rank[checked.tables[each]])
        bags = checked.columns(order)
        return Request(bags, self._segments(bags), order, source or checked)

    def _segments(self, bags):
        segments, lookup, feature = [], 0, 0
        counts, samples = bags.counts, bags.samples
        while feature < bags.features:
            group, last = self._group[bags.tables[feature]], feature
            while last < bags.features and self._group[bags.tables[last]] == group:
                last += 1
            span = slice(lookup, lookup + sum(counts[feature:last]))
            first = torch.tensor([self._first[table] for table in bags.tables[feature:last]])
            flat = bags.ids[span] + torch.repeat_interleave(
                first, torch.tensor(counts[feature:last]))
            segments.append(Segment(group, flat, bags.lengths[feature * samples:last * samples],
                                    span, last - feature))
            lookup, feature = span.stop, last
        return segments
