"""The parts of a collection, made and connected."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Literal

import torch

from ...contract.errors import Error
from ...device import Device
from ..features.configs import TableConfig, TableGroup, group_tables
from ..features.layout import FeatureLayout
from ..memory.slot_memory import memory_on
from ..optim.rules import Rule
from ..optim.staging import GradientStage
from ..store.base import OwnStore, Store
from ..store.disk import Disk
from ..store.near_memory import NearMemoryStore
from ..store.opening import Mode, open_store
from ..store.options import Options
from .bag_calls import BagCalls
from .cache import Cache
from .commits import Commits
from .contents import TableContents
from .id_maps import IdMaps
from .lifecycle import Lifecycle
from .lookups import Lookups
from .named_tables import NamedTables
from .row_optimizer import RowOptimizer
from .saved_state import SavedState
from .torchrec_tables import TorchRecTables
from .trained_batches import TrainedBatches


class Parts:
    """What a `HotEmbeddingBagCollection` consists of, by the names of its attributes.

    Parameters
    ----------
    tables : list of TableConfig
    torchrec : TorchRecTables
        The same, which may draw the rows.
    device, mode, options
        As in `HotEmbeddingBagCollection`.
    rule : Rule

    Attributes
    ----------
    named : NamedTables
    """

    def __init__(self, tables: list[TableConfig], torchrec: TorchRecTables,
                 device: Device | str | None, mode: Mode, rule: Rule, options: Options) -> None:
        self.tables, self.mode, self.options, self.rule = tables, mode, options, rule
        self._torchrec = torchrec
        seed, groups, memory = options.seed, options.groups, memory_on(options.slots_device)
        with ExitStack() as undo:
            here = groups or self._make_groups()
            disk = self._open_disk(here)
            if disk is not None:
                undo.callback(disk.close)
            self.layout = self._make_layout(here)
            own = open_store(here, rule, memory, device, mode, options,
                             None if disk is None or disk.plan is None else disk.plan.slots)
            self.store = self._make_store(own)
            undo.callback(self.store.close)
            if disk is not None:
                disk.store.reserve(0 if own.card is None else own.card.slots)
            self.contents = self._make_contents(here)
            pooled: Literal["none", "cold", "all"] = (
                "all" if isinstance(own, NearMemoryStore) else
                "cold" if options.cold == "pooled" else "none")
            self.staging = GradientStage(self.store.groups, memory, pooled)
            self.lifecycle = Lifecycle(self.store, self.staging)
            self.id_maps = None
            if any(config.ids == "any" for config in tables):
                self.id_maps = self._make_id_maps(own, seed)
            if groups is None and options.initialise:
                self._draw(here, seed)
            undo.pop_all()
        self.batches = TrainedBatches(self.layout, self.store, self.lifecycle, mode, self.id_maps)
        self.calls = BagCalls(tables, self.layout, self.store, self.batches, self.staging)
        self.lookups = Lookups(self.layout, self.store, self.staging, self.batches, self.calls,
                               self.lifecycle)
        self.disk = self._make_commits(disk)
        if disk is not None and disk.store.number:
            self.disk.load_ids()
        self.cache = self._make_cache()
        self.named = NamedTables([config.name for config in tables], self.contents, self.lifecycle)
        self.saved = SavedState(tables, self.contents, self.named, self.lifecycle, self.cache,
                                self.disk, self.id_maps)
        self.optimizer = RowOptimizer(
            rule, self.layout, self.store, self.staging, self.batches, self.calls, self.id_maps,
            self.saved)

    # Parts that are others where several processes share the rows.

    def _make_groups(self) -> list[TableGroup]:
        """Tables in this process's memory."""
        return group_tables(self.tables, self.rule, whole=self.mode == "resident")

    def _open_disk(self, groups: Sequence[TableGroup]) -> Disk | None:
        """The store of tables on disk; None without one."""
        there = [group for group in groups if group.configs[0].path is not None]
        if not there:
            return None
        if self.mode == "resident" and any(config.memory for config in self.tables):
            raise Error("mode resident has whole tables in memory, whatever the limit: leave "
                        "memory out, or take mode 'scratchpipe'")
        return self._make_disk(there, seed_of(self.options.seed), self.options.depth)

    def _make_disk(self, groups: Sequence[TableGroup], seed: int, depth: int) -> Disk:
        return Disk(groups, self.rule, seed, depth, self.tables)

    def _make_commits(self, disk: Disk | None) -> Commits:
        return Commits(disk, self.store, self.lifecycle, self.id_maps)

    def _make_layout(self, groups: Sequence[TableGroup]) -> FeatureLayout:
        return FeatureLayout(self.tables, groups, self.options.bounds_check_mode,
                             self.options.is_weighted)

    def _make_store(self, own: OwnStore) -> Store:
        """The store of all rows, from that of the rows in this process's memory."""
        return own

    def _make_contents(self, groups: Sequence[TableGroup]) -> TableContents:
        return TableContents(groups, self.store.on_card)

    def _make_id_maps(self, own: OwnStore, seed: int | None) -> IdMaps:
        return IdMaps(self.tables, seed_of(seed), self.contents, own, self.rule.initial,
                      self.lifecycle)

    def _make_cache(self) -> Cache:
        return Cache(self.tables, self.mode, self.store, self.lifecycle)

    def _draw(self, groups: Sequence[TableGroup], seed: int | None) -> None:
        """Draw the rows of tables that have no contents."""
        if seed is None and self._torchrec.draw:
            for name, weights in self._torchrec.drawn(
                    config for config in self.tables if not self.contents.exists(config.name)):
                self.contents.assign(name, weights)
            return
        seed = seed_of(seed)
        for group in groups:
            if group.tables.disk is None:  # which draws rows that were never trained
                group.tables.initialise(seed, group.numbers)


def seed_of(seed: int | None) -> int:
    """A seed, by default from PyTorch's generator, which `torch.manual_seed` fixes."""
    return int(torch.randint(1 << 62, ())) if seed is None else seed
