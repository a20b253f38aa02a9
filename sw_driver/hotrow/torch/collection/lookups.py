"""Lookups of a collection: of batches that train, and of others."""

from __future__ import annotations

import torch

from ..features.bags import Bags
from ..features.grouping import Request
from ..features.layout import FeatureLayout
from ..optim.lookup import Lookup, PooledLookup
from ..optim.staging import GradientStage
from ..store.base import Store
from ..store.resident import ResidentStore
from ..store.slot_lookups import SlotLookups
from ..store.whole_tables import WholeTables
from .bag_calls import BagCalls
from .lifecycle import Lifecycle
from .trained_batches import TrainedBatches


class Lookups:
    """Looks Bags up.

    Parameters
    ----------
    layout : FeatureLayout
    store : Store
    staging : GradientStage
        Gets the gradients of the lookups.
    batches : TrainedBatches
    calls : BagCalls
        Finds the results of calls that are part of a batch.
    lifecycle : Lifecycle
    """

    def __init__(self, layout: FeatureLayout, store: Store, staging: GradientStage,
                 batches: TrainedBatches, calls: BagCalls, lifecycle: Lifecycle) -> None:
        self._layout, self._store, self._staging = layout, store, staging
        self._batches, self._calls, self._lifecycle = batches, calls, lifecycle
        self._whole = WholeTables(store, layout.configs, staging) if (
            isinstance(store, ResidentStore) and layout.pooled
            and all(config.ids == "rows" for config in layout.configs)) else None
        self._in_slots = None if store.card is None or not layout.pooled else SlotLookups(
            layout, staging)
        self._no_rows = torch.zeros(0, dtype=torch.float32)

    def by_feature(self, bags: Bags, training: bool, trains: bool) -> list[torch.Tensor]:
        """Embeddings of each feature of Bags.

        Parameters
        ----------
        bags : Bags
        training : bool
            Of the calling module.
        trains : bool
            Whether its rows are not frozen.

        Returns
        -------
        list of float32[samples, dim], or, unpooled, of float32[lookups, dim]
        """
        with self._staging.lock:
            if bags.features == 1 and training and torch.is_grad_enabled() and trains:
                found = self._calls.result(bags)
                if found is not None:
                    return [found]
            request, results = self.results(bags, training, trains)
        return self._layout.split(bags, request, results)

    def results(self, bags: Bags, training: bool,
                trains: bool) -> tuple[Request | None, list[torch.Tensor]]:
        """Request of Bags, None where tables need none, and the results of its lookups; arguments
        as in `by_feature`."""
        with self._staging.lock:
            differentiates = torch.is_grad_enabled() and trains
            lookup = None if self._whole is None else self._of_whole(
                bags, training and differentiates)
            if lookup is not None:
                return None, [self._result(lookup, bags.weights, differentiates)]
            if training and differentiates:
                request, located, pending = self._batches.take(bags)
            else:
                self._lifecycle.adopt_writes()
                request, pending = self._batches.request(bags, use="evaluate"), None
                located = self._store.look(request)
            weights = request.weights_of(bags)
            if weights is not None:
                weights = weights.to(self._store.slot_memory.device)
            if pending is not None and self._in_slots is not None:
                lookup = self._in_slots.look_up(request, located, weights)
                if lookup is not None:
                    pending.add(lookup)
                    return request, [self._result(lookup, weights, differentiates)]
            results = []
            for lookup in self._staging.lookups(
                    request, located, self._layout.bag_layouts(request), self._layout.pooled):
                if pending is not None:
                    pending.add(lookup)
                else:
                    lookup.trains, lookup.missed = False, self._staging.missed
                results.append(self._result(lookup, weights, differentiates))
            return request, results

    def _of_whole(self, bags: Bags, takes: bool) -> Lookup | None:
        """The lookup of Bags in whole tables, of the next batch if it `takes` one; or None."""
        assert self._whole is not None
        if takes:
            self._staging.check_whole()
        self._layout.check_weights(bags)
        lookup = self._whole.look_up(bags)
        if lookup is None:
            return None
        if takes:
            self._batches.count += 1
        else:
            lookup.trains, lookup.missed = False, self._staging.missed
        return lookup

    def _result(self, lookup: Lookup, weights: torch.Tensor | None,
                differentiates: bool) -> torch.Tensor:
        found: torch.Tensor = PooledLookup.apply(
            self._staging.anchor if differentiates else self._no_rows, weights, lookup)
        return found
