"""The features of a collection: from what callers pass to requests, and from rows to results."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TypeAlias, TypeVar

import torch

from ...contract.errors import BatchError, Error
from ...kernels.pooling import BagLayout
from .bags import Bags
from .configs import TableConfig, TableGroup, check_tables
from .grouping import Grouping, Request

Result = TypeVar("Result")
BOUNDS_CHECKS = ("fatal", "warning", "ignore")
_Batch: TypeAlias = tuple[tuple[int, ...], int]  # tables and samples


class FeatureLayout:
    """Tables, the features that look up in them, and the check of their ids.

    Parameters
    ----------
    configs : sequence of TableConfig
    groups : sequence of TableGroup
    bounds_check_mode, is_weighted
        As in `Options`.

    Attributes
    ----------
    features : list of (int, str)
        Table and name of each feature.
    pooled : bool
        Whether bags are pooled.
    grouping : Grouping

    Raises
    ------
    Error
    """

    def __init__(self, configs: Sequence[TableConfig], groups: Sequence[TableGroup],
                 bounds_check_mode: str, is_weighted: bool = False):
        check_tables(configs)
        if bounds_check_mode not in BOUNDS_CHECKS:
            raise Error(f"bounds_check_mode is {', '.join(map(repr, BOUNDS_CHECKS))}, not "
                        f"{bounds_check_mode!r}")
        self.configs, self._bounds_check_mode = configs, bounds_check_mode
        self.is_weighted = is_weighted
        self.features = [(number, name) for number, config in enumerate(configs)
                         for name in config.feature_names]
        self._tables, self._names = zip(*self.features, strict=True)
        self.pooled = configs[0].pooling != "none"
        self.grouping = Grouping(groups)
        self._dense_layouts: dict[_Batch, list[BagLayout]] = {}  # of the last dense batch
        self._dims = [config.embedding_dim for config in configs]
        self._mapped = {number for number, config in enumerate(configs) if config.ids == "any"}
        self._mean = torch.tensor([config.pooling == "mean" for config in configs])

    def agree(self, call: Callable[[], Result], what: str) -> Result:
        """The result of `call()`; ranks of one collection refuse together, and say `what`."""
        return call()

    def bags(self, inputs: object, offsets: object = None, weights: object = None) -> Bags:
        """Bags of what a caller passes to the collection."""
        return Bags.of(self._tables, inputs, offsets, weights, self._names,
                       is_weighted=self.is_weighted)

    def request(self, bags: Bags, batch: str) -> Request:
        """Check Bags of a `batch`, named in errors, and sort them by group: Request.

        Ids that may be any look up row 0, until `mapped` gives them their rows.
        """
        self.check_weights(bags)
        plain = bags if not self._mapped else bags.with_rows([
            torch.zeros(count, dtype=torch.int64) if table in self._mapped else None
            for table, count in zip(bags.tables, bags.counts, strict=True)])
        request = self.grouping.request(plain, bags)
        if request is None:
            plain = plain.bounded(self.configs, batch, self._bounds_check_mode)
            request = self.grouping.request(plain, bags)
        assert request is not None, "every id is a row of its table"
        return request

    def mapped(self, request: Request, rows: Sequence[torch.Tensor | None]) -> Request:
        """A Request with rows int64[n] of each feature of its source, None for those it has."""
        bags = request.bags.with_rows([rows[feature] for feature in request.order])
        found = self.grouping.request(bags, request.source)
        assert found is not None, "a map gives rows of its table"
        return replace(found, order=request.order)

    def check_weights(self, bags: Bags) -> None:
        """Raise BatchError if Bags have weights that no table takes."""
        if bags.weights is not None and any(
                self.configs[each].pooling != "sum" for each in bags.tables):
            raise BatchError("weights per sample go with pooling 'sum' only, as in nn.EmbeddingBag")

    def bag_layouts(self, request: Request) -> list[BagLayout]:
        """Where the bags of each segment lie in the caller's order of features.

        Returns
        -------
        list of BagLayout
            All of one width with pooling; without, each lookup is a bag.
        """
        if not self.pooled:
            starts = accumulate((segment.features for segment in request.segments), initial=0)
            return [BagLayout(1, segment.count, self._dims[request.bags.tables[start]])
                    for start, segment in zip(starts, request.segments, strict=False)]
        if not request.source.dense:
            return self._pooled_layouts(request)
        key = request.source.tables, request.bags.samples
        if key not in self._dense_layouts:
            self._dense_layouts = {key: self._pooled_layouts(request)}
        return self._dense_layouts[key]

    def _pooled_layouts(self, request: Request) -> list[BagLayout]:
        samples, layouts, first = request.bags.samples, [], 0
        ends = torch.tensor([self._dims[table] for table in request.source.tables]).cumsum(0)
        columns = torch.cat((ends.new_zeros(1), ends))[request.order]
        for segment in request.segments:
            last = first + segment.features
            tables = list(request.bags.tables[first:last])
            mean, lengths = self._mean[tables], segment.lengths
            layouts.append(BagLayout(
                segment.features, samples, self._dims[tables[0]],
                lengths.contiguous() if lengths.stride(0) else None,
                mean if bool(mean.any()) else None, columns[first:last], int(ends[-1])))
            first = last
        return layouts

    def split(self, bags: Bags, request: Request | None,
              results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Results of the lookups of Bags by feature; without pooling, of a Request: list of Tensor.
        """
        if bags.features == 1:
            return list(results)  # no view, so that it may be changed in place
        if self.pooled:
            return list(results[0].split([self._dims[table] for table in bags.tables], dim=1))
        assert request is not None
        counts = request.bags.counts
        by_feature, first = [results[0]] * len(request.order), 0
        for segment, result in zip(request.segments, results, strict=True):
            last = first + segment.features
            for place, each in zip(request.order[first:last], result.split(counts[first:last]),
                                   strict=True):
                by_feature[place] = each
            first = last
        return by_feature
