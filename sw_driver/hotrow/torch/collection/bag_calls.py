"""The calls of a converted model's bags as one batch: one plan whatever the number of bags."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, count, pairwise, repeat
from typing import Any

import torch

from ...contract.errors import Error
from ...kernels.pooling import pool_bags, sum_blocks
from ..features.bags import Bags, GridBags
from ..features.configs import TableConfig
from ..features.grouping import Request
from ..features.layout import FeatureLayout
from ..optim.gradients import LocatedRows
from ..optim.lookup import Lookup, LookupPart
from ..optim.staging import GradientStage
from ..store.base import Store
from .trained_batches import TrainedBatches


class BagCalls:
    """The batch whose bags a model calls one by one.

    The first call of a bag looks the whole batch up, which was prefetched or announced; the others
    find their results.

    Parameters
    ----------
    tables : sequence of TableConfig
    layout : FeatureLayout
    store : Store
    batches : TrainedBatches
    staging : GradientStage
        Gets the gradients of the lookups.
    """

    def __init__(self, tables: Sequence[TableConfig], layout: FeatureLayout, store: Store,
                 batches: TrainedBatches, staging: GradientStage) -> None:
        self._tables, self._layout, self._store = tables, layout, store
        self._batches, self._staging = batches, staging
        self._announced: Bags | None = None
        self._source: Bags | None = None
        self._joined = False  # whether a batch of several calls was looked up
        # By table, of each call that was not made: feature, result, ids.
        self._open: dict[int, deque[tuple[int, torch.Tensor, torch.Tensor | None]]] = {}

    def announce(self, bags: Bags) -> None:
        """Expect calls with these Bags."""
        self._announced = bags if bags.features > 1 else None

    def drop(self) -> None:
        """Forget the results that nobody asked for."""
        self._open, self._source = {}, None

    def expected(self, table: int, ids: Any) -> torch.Tensor | None:
        """The result of the next call of a table, if it has these ids [samples, 1]; else None."""
        calls = self._open.get(table)
        if not calls:
            return None
        column = calls[0][2]
        if (column is None or not isinstance(ids, torch.Tensor) or ids.dtype != column.dtype
                or not torch.equal(column, ids)):
            return None
        return calls.popleft()[1]

    def result(self, bags: Bags) -> torch.Tensor | None:
        """The result of a call, float32[samples, dim]; None if it is no part of a batch."""
        found = self._next(bags)
        if found is not None:
            return found
        source = self._coming()
        if source is not None and _feature_of(source, bags) is not None:
            self._begin(source)
            return self._next(bags)
        if source is None and not (self._joined and self._batches.repeats):
            return None
        found = self._repeated(bags)
        if found is None and self._announced is not None:
            name = self._tables[bags.tables[0]].name
            raise Error(f"the call of bag {name!r} with {bags.lookups} ids is not the one that was "
                        f"announced: `inputs` gives the arguments of every call of every bag")
        return found

    def _coming(self) -> Bags | None:
        """The Bags of all calls that begin with this one, or None."""
        if self._announced is not None:
            return self._announced
        coming = self._batches.coming
        return None if coming is None or coming.features < 2 else coming

    def _begin(self, source: Bags) -> None:
        self.drop()
        self._announced, self._joined = None, True
        request, located, pending = self._batches.take(source)
        lookup = self._lookup_of(request, located)
        pending.add(lookup)

        def some(features: Sequence[int]) -> Lookup:
            return self._lookup_of_features(request, located, features)

        self._source = source
        columns: Iterable[torch.Tensor | None] = (
            source.grid.split(1, dim=1) if isinstance(source, GridBags) else repeat(None))
        for call in zip(count(), self._called(source.tables, lookup, some), columns, strict=False):
            self._open.setdefault(source.tables[call[0]], deque()).append(call)

    def _next(self, bags: Bags) -> torch.Tensor | None:
        """The result of the next call of a table, if it is this one."""
        calls = self._open.get(bags.tables[0])
        if not calls or self._source is None or not _is_feature(self._source, calls[0][0], bags):
            return None
        return calls.popleft()[1]

    def _repeated(self, bags: Bags) -> torch.Tensor | None:
        """The result of a call that was made before: of a batch that was taken, or None."""
        for request, located, pending in self._store.open_batches():
            feature = _feature_of(request.source, bags)
            if request.source.features > 1 and feature is not None:
                lookup = self._lookup_of_features(request, located, [feature])
                pending.add(lookup)
                return self._called(bags.tables, lookup, None)[0]
        return None

    def _called(self, tables: Sequence[int], lookup: Lookup,
                some: Callable[[Sequence[int]], Lookup] | None) -> tuple[torch.Tensor, ...]:
        """The result of each feature, of one of these tables."""
        dims = [self._tables[table].embedding_dim for table in tables]
        found: tuple[torch.Tensor, ...] = CalledLookup.apply(
            self._staging.anchor, lookup, dims, some)
        return found

    def _lookup_of(self, request: Request, located: list[LocatedRows]) -> Lookup:
        """The Lookup of pooled bags whose rows were located."""
        return self._staging.lookups(
            request, located, self._layout.bag_layouts(request), pooled=True)[0]

    def _lookup_of_features(self, request: Request, located: list[LocatedRows],
                            features: Sequence[int]) -> Lookup:
        """A Lookup of some features, ascending, of the caller's Bags that were looked up."""
        chosen, first = [], 0
        for segment, rows in zip(request.segments, located, strict=True):
            places = range(first, first + segment.features)
            here = [place - first for place in places if request.order[place] in features]
            first += segment.features
            if not here:
                continue
            starts = list(pairwise(accumulate(segment.counts, initial=0)))
            samples = request.bags.samples

            def some(values: Any, bounds: Sequence[tuple[int, int]], here: list[int] = here) -> Any:
                return None if values is None else torch.cat(
                    [values[slice(*bounds[feature])] for feature in here])

            bags = [(feature * samples, (feature + 1) * samples)
                    for feature in range(segment.features)]
            chosen.append(replace(rows, at=some(rows.at, starts), cold=some(rows.cold, starts),
                                  sums=some(rows.sums, bags)))
        return self._lookup_of(self._layout.request(
            request.source.columns(features), "a repeated batch"), chosen)


class CalledLookup(torch.autograd.Function):
    """A `Lookup` with a result per feature; features without a gradient are not trained."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, lookup: Lookup, dims: list[int],
                some: Callable[[Sequence[int]], Lookup] | None) -> tuple[torch.Tensor, ...]:
        """Pool; `some` makes the Lookup of a list of features, and `anchor` requires a gradient."""
        ctx.lookup, ctx.some, ctx.blocks = lookup, some, None
        ctx.set_materialize_grads(False)
        if all(part.compiled for part in lookup.parts):
            ctx.blocks = [_Blocks(part) for part in lookup.parts]
            by_column: dict[int, torch.Tensor] = {}
            for each in ctx.blocks:
                by_column |= each.pool()
            return tuple(by_column[column] for column in sorted(by_column))
        pooled, _ = lookup.pool(None)
        # Tensors of their own, no views: each may be changed in place.
        return tuple(each.clone() for each in pooled.split(dims, dim=1))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        kept = [feature for feature, each in enumerate(gradients)
                if each is not None and each.numel()]
        if kept:
            with ctx.lookup.staging():
                CalledLookup._stage(ctx, kept, gradients)
        ctx.lookup.done = True
        return None, None, None, None

    @staticmethod
    def _stage(ctx: Any, kept: list[int], gradients: Sequence[Any]) -> None:
        if ctx.blocks is not None and len(kept) == len(gradients):
            ends = accumulate(each.shape[1] for each in gradients)
            by_column = {end - each.shape[1]: each for end, each in zip(
                ends, gradients, strict=True)}
            for each in ctx.blocks:
                each.stage(by_column)
        else:
            lookup = ctx.lookup if len(kept) == len(gradients) else ctx.some(kept)
            lookup.stage(torch.cat([gradients[feature] for feature in kept], dim=1), None)
        ctx.lookup.done = True


class _Blocks:
    """A `LookupPart` whose features have a contiguous block each, [samples, dim], in one array.

    Row s of the array, as the compiled passes see it, begins at row s of the first block and
    overlaps the next row: feature f is found at column f * samples * dim of each row.
    """

    def __init__(self, part: LookupPart) -> None:
        self._part, layout = part, part.layout
        self._block = layout.samples * layout.dim
        self._columns = layout.first_columns.tolist()  # in the result of all features
        self._layout = replace(
            layout, columns=torch.arange(layout.features) * self._block,
            width=max(0, layout.features - 1) * self._block + layout.dim)

    def pool(self) -> dict[int, torch.Tensor]:
        """The pooled bags of each feature, by column: dict of float32[samples, dim]."""
        layout, located = self._layout, self._part.located
        memory = torch.empty(layout.features * self._block, dtype=torch.float32)
        pool_bags(located.rows.weights, located.at, layout, out=self._rows(memory))
        return {column: memory.new_empty(0).set_(
            memory.untyped_storage(), feature * self._block, (layout.samples, layout.dim),
            (layout.dim, 1))
            for feature, column in enumerate(self._columns)}

    def stage(self, gradients: Mapping[int, torch.Tensor]) -> None:
        """Stage gradients by column."""
        part = self._part
        groups = part.grouper.group(part.located.at)
        sums = sum_blocks([gradients[column] for column in self._columns], groups, part.layout)
        part.staged.add_groups(part.located, part.flat, groups.distinct, sums)

    def _rows(self, memory: torch.Tensor) -> torch.Tensor:
        layout = self._layout
        return memory.as_strided((layout.samples, layout.row_width), (layout.dim, 1))


def _is_feature(source: Bags, feature: int, bags: Bags) -> bool:
    """Whether Bags of one feature are that feature of others."""
    if isinstance(source, GridBags) and isinstance(bags, GridBags):
        return source.tables[feature] == bags.tables[0] and torch.equal(
            source.grid[:, feature], bags.grid[:, 0])
    return source.columns([feature]).equals(bags)


def _feature_of(source: Bags, bags: Bags) -> int | None:
    """The feature of Bags that Bags of one feature are, or None."""
    return next((feature for feature, table in enumerate(source.tables)
                 if table == bags.tables[0] and _is_feature(source, feature, bags)), None)
