"""The parts of a collection that are others where several processes share its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..collection.cache import Cache
from ..collection.commits import Commits
from ..collection.contents import TableContents
from ..collection.id_maps import IdMaps
from ..collection.lifecycle import Lifecycle
from ..collection.parts import Parts, seed_of
from ..features.configs import TableConfig, TableGroup
from ..features.layout import FeatureLayout, Result
from ..optim.finite_check import FiniteCheck
from ..store.base import OwnStore, Store
from ..store.disk import Disk
from .commits import SharedCommits, common_seed, folder_of_rank, open_common
from .contents import ShardedContents
from .id_maps import SharedIdMaps
from .ranks import Ranks
from .sharding import Sharding
from .store import ShardedStore


class SharedParts(Parts):
    """The parts of a `ShardedEmbeddingBagCollection`; all ranks make theirs together.

    Parameters
    ----------
    given
        As in `Parts`.
    ranks : Ranks
    """

    def __init__(self, *given: Any, ranks: Ranks) -> None:
        self.ranks = ranks
        super().__init__(*given)
        self.staging.finite = AgreedFiniteCheck(ranks)

    def _make_groups(self) -> list[TableGroup]:
        path, ranks = self._path, self.ranks
        folder = None if path is None else ranks.agree(
            lambda: folder_of_rank(path, ranks.rank, ranks.world), "tables on disk were not opened")
        self._sharding = Sharding(self.tables, self.rule, ranks.rank, ranks.world, folder,
                                  self.mode == "resident")
        return self._sharding.shards

    @property
    def _path(self) -> str | None:
        """Folder of the ranks' folders of tables on disk."""
        return next((str(config.path) for config in self.tables if config.path is not None), None)

    def _make_disk(self, groups: Sequence[TableGroup], seed: int, depth: int) -> Disk:
        found: list[Disk] = []
        seed = common_seed(str(groups[0].configs[0].path), groups[0].numbers[0], seed, self.ranks)
        try:
            self.ranks.agree(
                lambda: found.append(Disk(groups, self.rule, seed, depth, self.tables,
                                          self._sharding.part)),
                "tables on disk were not opened, because of those")
            if self.ranks.world > 1:
                open_common(found[0], str(self._path), self.ranks)
        except BaseException:
            for disk in found:
                disk.close()
            raise
        return found[0]

    def _make_commits(self, disk: Disk | None) -> Commits:
        if disk is None or self.ranks.world == 1:
            return super()._make_commits(disk)
        assert isinstance(self.store, ShardedStore)
        return SharedCommits(disk, self.store, self.lifecycle, self.id_maps, str(self._path),
                             self.ranks)

    def _make_layout(self, groups: Sequence[TableGroup]) -> FeatureLayout:
        return AgreedLayout(self.tables, self._sharding.spans, self.options.bounds_check_mode,
                            self.options.is_weighted, self.ranks)

    def _make_store(self, own: OwnStore) -> Store:
        return ShardedStore(own, self._sharding, self.ranks)

    def _make_contents(self, groups: Sequence[TableGroup]) -> TableContents:
        return ShardedContents(self._sharding, self.ranks)

    def _make_id_maps(self, own: OwnStore, seed: int | None) -> IdMaps:
        return SharedIdMaps(self.tables, self.ranks.first(seed_of(seed)), self.contents, own,
                            self.rule.initial, self.lifecycle, self._sharding, self.ranks)

    def _make_cache(self) -> Cache:
        return ShardedCache(self.tables, self.mode, self.store, self.lifecycle, self.contents,
                            self.ranks)

    def _draw(self, groups: Sequence[TableGroup], seed: int | None) -> None:
        self._sharding.initialise(self.ranks.first(seed_of(seed)))


class AgreedLayout(FeatureLayout):
    """A layout of which the ranks refuse a batch together; parameters as in `FeatureLayout`."""

    def __init__(self, configs: Sequence[TableConfig], groups: Sequence[TableGroup],
                 bounds_check_mode: str, is_weighted: bool, ranks: Ranks) -> None:
        super().__init__(configs, groups, bounds_check_mode, is_weighted)
        self._ranks = ranks

    def agree(self, call: Callable[[], Result], what: str) -> Result:
        return self._ranks.agree(call, what)


class ShardedCache(Cache):
    """The slots of all ranks, each for rows that the rank owns; all calls are collective.

    Parameters
    ----------
    tables, mode, store, lifecycle
        As in `Cache`.
    contents : TableContents
        Places of the tables, which decide on owners.
    ranks : Ranks
    """

    def __init__(self, tables: Sequence[TableConfig], mode: str, store: Store,
                 lifecycle: Lifecycle, contents: TableContents, ranks: Ranks) -> None:
        super().__init__(tables, mode, store, lifecycle)
        self._contents, self._ranks = contents, ranks

    def access_counts(self) -> torch.Tensor | None:
        own, world = super().access_counts(), self._ranks.world
        counts, rank = self._ranks.gather_columns(
            torch.empty(3, 0, dtype=torch.int64) if own is None else own)
        if not counts.shape[1]:
            return None
        counts[1] = counts[1] * world + (rank - self._places(counts[0])) % world
        return counts

    def set_access_counts(self, counts: torch.Tensor) -> None:
        if self._store.card is None:
            return
        world = self._ranks.world
        mine = (counts[1] + self._places(counts[0])) % world == self._ranks.rank
        table, row, count = counts[:, mine]
        super().set_access_counts(torch.stack((
            table, torch.div(row, world, rounding_mode="floor"), count)))

    def learn(self, rows: Mapping[str, Any] | None = None, warmup_ratio: float | None = None,
              ids_freq_mapping: Mapping[str, Any] | None = None, limit: int | None = None,
              decay: int = 0) -> int:
        """As `Cache.learn`, of all ranks: each gives slots to rows that it owns."""
        return self._ranks.total(super().learn(rows, warmup_ratio, ids_freq_mapping, limit, decay))

    def agree(self, call: Callable[[], Result], what: str) -> Result:
        return self._ranks.agree(call, what)

    def owned(self, name: str, rows: NDArray[np.int64]) -> tuple[NDArray[np.bool_],
                                                                 NDArray[np.int64]]:
        owner = (rows + self._contents.locate(name)[1]) % self._ranks.world
        mine: NDArray[np.bool_] = owner == self._ranks.rank
        return mine, rows[mine] // self._ranks.world

    def _places(self, tables: torch.Tensor) -> torch.Tensor:
        """Place in its group of each of the device's tables int64[n], which decides on owners."""
        card = self._store.card
        assert card is not None, "a device counts"
        device = [card.device_table(number) for number in range(len(self._tables))]
        places = torch.zeros(max(device) + 1, dtype=torch.int64)
        places[device] = torch.tensor(
            [self._contents.locate(each.name)[1] for each in self._tables])
        return places[tables]


class AgreedFiniteCheck(FiniteCheck):
    """A check whose refusal every rank raises."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def check(self, batch: int, staged: Sequence[Any]) -> None:
        self._ranks.agree(lambda: FiniteCheck.check(self, batch, staged),
                          f"batch {batch}: nothing was applied, because of a gradient")
