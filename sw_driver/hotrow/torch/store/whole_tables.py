"""Lookups in tables that lie whole in this process's memory: one call for ids to bags, one for
gradients to sums, with what batches have in common made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...kernels.updating import Rule, compiled_rule
from ...kernels.whole_tables import TableFeatures
from ..features.bags import Bags, GridBags
from ..features.configs import TableConfig
from ..optim.gradients import LocatedRows, StagedGradients
from ..optim.lookup import Lookup, RecycledMemory
from ..optim.staging import GradientStage
from .resident import ResidentStore


class _Group(NamedTuple):
    """The features of one group of tables."""

    group: int
    features: TableFeatures
    staged: StagedGradients


class FoundRows(NamedTuple):
    """The lookups of a batch in one group of tables."""

    features: TableFeatures
    staged: StagedGradients
    located: LocatedRows
    flat: Callable[[], Tensor]  # flat row int64[n] of each lookup
    lengths: Tensor | None = None  # int64[bags]
    lookups: slice = slice(None)  # of the batch's
    defers: bool = False  # whether the store steps by `Deferred`


class WholeTables:
    """Looks up batches in the tables of a store.

    Parameters
    ----------
    store : ResidentStore
    configs : sequence of TableConfig
        Of all tables, pooled.
    staging : GradientStage
        Gets the gradients of the lookups, and has the lock of each call.
    """

    def __init__(self, store: ResidentStore, configs: Sequence[TableConfig],
                 staging: GradientStage) -> None:
        self._store, self._configs, self._staging = store, configs, staging
        self._groups: dict[tuple[int, ...], list[_Group]] = {}  # by tables of the features

    def look_up(self, bags: Bags) -> WholeLookup | None:
        """The lookup of a batch, which does not check `bags.weights` against the pooling; None if
        the batch needs the other path: an id is no row of its table, weights have a gradient, or
        bags of several lengths look up in several groups."""
        groups = self._groups.get(bags.tables)
        if groups is None:
            groups = self._groups[bags.tables] = self._make_groups(bags.tables)
        weights, lengths = bags.weights, None
        if isinstance(bags, GridBags):
            ids = bags.grid
        else:
            ids, lengths = bags.ids, bags.lengths
            if not lengths.is_contiguous():
                return None
        if weights is not None and (weights.requires_grad or not weights.is_contiguous()):
            return None
        if len(groups) > 1 and not (lengths is None and weights is None):
            return None
        out = self._staging.memory.empty(bags.samples, groups[0].features.width)
        found = []
        for each in groups:
            flat = each.features.look_up(ids, lengths, weights, out)
            if flat is None:
                return None
            rows = self._store.groups[each.group].tables.rows
            located = LocatedRows(rows, flat, self._staging.lock, grouper=each.features.grouper)
            found.append(FoundRows(each.features, each.staged, located, flat.long, lengths,
                                   defers=each.features.steps))
        return WholeLookup(found, out, self._staging)

    def _make_groups(self, tables: tuple[int, ...]) -> list[_Group]:
        ends = torch.tensor([self._configs[table].embedding_dim for table in tables]).cumsum(0)
        groups = []
        for number, group in enumerate(self._store.groups):
            chosen = [place for place, table in enumerate(tables) if table in group.numbers]
            if not chosen:
                continue
            places = torch.tensor(chosen)
            local = [group.numbers.index(tables[place]) for place in chosen]
            mean = torch.tensor([group.configs[each].pooling == "mean" for each in local])
            features = TableFeatures(
                group.tables.rows.weights, self._store.groupers[number], places,
                torch.from_numpy(group.tables.first[local]),
                torch.tensor([group.tables.cardinalities[each] for each in local]),
                ends[places] - group.kind.dim, int(ends[-1]),
                mean if bool(mean.any()) else None)
            groups.append(_Group(number, features, self._staging.rows[number]))
        return groups


class WholeLookup(Lookup):
    """A batch that was looked up.

    Parameters
    ----------
    found : list of FoundRows
    pooled : float32[samples, width]
    staging : GradientStage
    """

    def __init__(self, found: list[FoundRows], pooled: Tensor, staging: GradientStage) -> None:
        super().__init__([], True, staging.memory, staging.staging)
        self._found, self._staging = found, staging
        self._pooled = [pooled]

    def pool(self, weights: Tensor | None) -> tuple[Tensor, list[Tensor] | None]:
        return self._pooled.pop(), None  # which shall not live as long as the lookup

    def _stage(self, gradients: Tensor, weights: Tensor | None) -> None:
        # A caller may change gradients and lengths before the step.
        kept, finite, additions = None, False, sum(each.located.at.shape[0] for each in self._found)
        for features, staged, located, flat, lengths, lookups, defers in self._found:
            batch = _Gradients(features, located, lengths, None if weights is None
                               else weights[lookups], gradients, self._memory)
            bags = len(gradients) * features.count  # of one or two ids, sums cost no more
            if defers and weights is None and staged.empty and located.at.shape[0] >= 3 * bags > 0:
                if kept is None:
                    kept = self._memory.empty(*gradients.shape)
                    finite = features.copy(gradients, kept, additions)
                if finite:
                    staged.defer(located, flat, batch._replace(
                        values=kept, lengths=None if lengths is None else lengths.clone()))
                    continue
            staged.add_groups(located, flat, *batch.sums())


class _Gradients(NamedTuple):
    """The gradients of a batch in one group of tables."""

    features: TableFeatures
    located: LocatedRows
    lengths: Tensor | None
    weights: Tensor | None
    values: Tensor
    memory: RecycledMemory

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.located.at.nbytes

    def sums(self) -> tuple[Tensor, Tensor, bool]:
        """Distinct places integers [u], the sums of their gradients float32[u, D], and whether
        each is finite."""
        at = self.located.at
        return self.features.sum_rows(at, self.lengths, self.weights, self.values,
                                      self.memory.empty(at.shape[0], self.features.dim))

    def step(self, rule: Rule) -> bool:
        """Update the rows; False if the rule has no compiled pass."""
        at = self.located.at
        if compiled_rule(rule) is None:
            return False
        self.features.step(at, self.lengths, self.values, rule, self.located.rows.state,
                           self.memory.empty(1, 6 * at.shape[0] + 32))
        return True
