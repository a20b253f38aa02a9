"""Lookups of batches whose rows are in slots: one call for places to bags, one for gradients to
sums, with what batches have in common made once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...kernels.whole_tables import TableFeatures
from ..features.grouping import Request
from ..features.layout import FeatureLayout
from ..optim.gradients import LocatedRows
from ..optim.staging import GradientStage
from .whole_tables import FoundRows, WholeLookup


class SlotLookups:
    """Pools bags of rows that a store located in its memory.

    Parameters
    ----------
    layout : FeatureLayout
        Of pooled tables.
    staging : GradientStage
        Gets the gradients of the lookups.
    """

    def __init__(self, layout: FeatureLayout, staging: GradientStage) -> None:
        self._layout, self._staging = layout, staging
        # Of the last tables: by segment.
        self._features: tuple[tuple[int, ...], list[TableFeatures]] = (), []

    def look_up(self, request: Request, located: Sequence[LocatedRows],
                weights: torch.Tensor | None) -> WholeLookup | None:
        """The lookup of a Request with `weights` in its order; None if it needs the other path:
        rows are on a GPU, or not in the store's own memory, bags are pooled in part, or weights
        have a gradient."""
        if weights is not None and (weights.requires_grad or not weights.is_contiguous()):
            return None
        for each in located:
            if each.grouper is None or each.cold is not None or each.at.device.type != "cpu":
                return None
        tables, features = self._features
        if tables != request.source.tables or any(
                one.rows is not each.rows.weights or one.grouper is not each.grouper
                for one, each in zip(features, located, strict=True)):
            features = self._make_features(request, located)
            self._features = request.source.tables, features
        dense, samples = request.bags.dense, request.bags.samples
        out = self._staging.memory.empty(samples, features[0].width)
        found = []
        for one, each, segment in zip(features, located, request.segments, strict=True):
            lengths = None if dense else segment.lengths
            one.pool_rows(each.at, lengths,
                          None if weights is None else weights[segment.lookups], out)
            found.append(FoundRows(one, self._staging.rows[segment.group], each, segment.flat_rows,
                                   lengths, segment.lookups,
                                   defers=one.steps and not each.bypassed))
        return WholeLookup(found, out, self._staging)

    def _make_features(self, request: Request,
                       located: Sequence[LocatedRows]) -> list[TableFeatures]:
        made = []
        for each, layout in zip(located, self._layout.bag_layouts(request), strict=True):
            assert each.grouper is not None, "the store's own memory has a grouper"
            none = torch.zeros(layout.features, dtype=torch.int64)
            made.append(TableFeatures(each.rows.weights, each.grouper, none, none, none,
                                      layout.first_columns, layout.row_width, layout.mean))
        return made
