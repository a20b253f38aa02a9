"""Embedding tables that several processes train together: `ShardedEmbeddingBagCollection`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ...contract.errors import Error
from ...device import Device
from ..collection.cache import Cache
from ..collection.collection import HotEmbeddingBagCollection, drawn_seed
from ..collection.commits import Commits
from ..collection.contents import Contents, TableContents
from ..collection.id_maps import IdMaps
from ..collection.lifecycle import Lifecycle
from ..features.configs import TableConfig, TableGroup, table_config
from ..features.layout import FeatureLayout, Result
from ..memory.slot_memory import memory_on
from ..memory.tables import EmbeddingTables, digest_of
from ..optim.finite_check import FiniteCheck
from ..optim.on_host import entries_on_host
from ..optim.rules import OptimizerName, Rule
from ..store.base import OwnStore, Store
from ..store.disk import Disk
from ..store.opening import Mode
from ..store.options import DEFAULTS, Options
from .commits import SharedCommits, common_seed, folder_of_rank, open_common
from .id_maps import SharedIdMaps
from .ranks import Ranks
from .sharding import Sharding
from .store import ShardedStore


class ShardedContents(TableContents):
    """Whole tables, gathered from all ranks; every call but `assign` and `locate` is collective."""

    def __init__(self, sharding: Sharding, ranks: Ranks) -> None:
        super().__init__(sharding.spans)
        self._sharding, self._ranks = sharding, ranks

    def _tables(self, group: int) -> EmbeddingTables:
        return self._sharding.shards[group].tables

    def parameter(self, name: str) -> None:
        return None

    def table(self, name: str) -> Contents:
        """Copies of one table: (weights [rows, dim], state or None), as large at every rank."""
        group, local = self._ranks.agree(
            lambda: self.locate(name), f"table {name!r} was not gathered, because of the name")
        rows = self._groups[group].tables.cardinalities[local]
        weights, state = self._sharding.shards[group].tables.table(local)
        return (self._gathered(weights, local, rows),
                None if state is None else self._gathered(state, local, rows))

    def state_shape(self, name: str) -> list[int] | None:
        group, local = self.locate(name)
        state = self._sharding.shards[group].tables.rows.state
        return None if state is None else [
            self._groups[group].tables.cardinalities[local], *state.shape[1:]]

    def rows(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """Copies of the weights of rows int64[n], the same at every rank, of one table."""
        group, local = self.locate(name)
        owner, tables = (rows + local) % self._ranks.world, self._tables(group)
        mine = torch.div(rows[owner == self._ranks.rank], self._ranks.world,
                         rounding_mode="floor")
        weights = (tables.table(local)[0][mine] if tables.in_memory or tables.disk is None
                   else tables.disk.read(mine + int(tables.first[local])).weights)
        owned = torch.bincount(owner, minlength=self._ranks.world)
        padded = weights.new_empty(int(owned.max()), weights.shape[1])
        padded[:len(mine)] = weights
        found = weights.new_empty(len(rows), weights.shape[1])
        for rank, part in enumerate(self._ranks.gather(padded)):
            found[owner == rank] = part[:int(owned[rank])]
        return found

    def assign(self, name: str, weights: torch.Tensor | None = None,
               state: torch.Tensor | None = None) -> None:
        group, local = self.locate(name)
        owned, tables = self._sharding.own(group, local)[0], self._tables(group)
        if not tables.in_memory and tables.disk is not None:
            tables.disk.assign(int(tables.first[local]), *(
                None if each is None else each[owned] for each in (weights, state)))
            tables.disk.changed = True  # also where a rank has no row of it
            return
        for here, given in zip(tables.table(local), (weights, state), strict=True):
            if given is not None:
                assert here is not None, "a table without state gets none"
                mine = given[owned]
                here[:len(mine)] = mine

    def sha256(self) -> str:
        return "-".join(
            digest_of(each for part in range(2) for local in range(len(group.configs))
                      for each in self._parts(number, local, part))
            for number, group in enumerate(self._groups))

    def _parts(self, group: int, local: int, part: int) -> Iterator[torch.Tensor]:
        """Weights (0) or state (1) of a whole table, in parts."""
        rows, world = self._groups[group].tables.cardinalities[local], self._ranks.world
        begin = 0
        for each in self._tables(group).parts(local, part):
            if each is not None:
                end = min(rows, begin + len(each) * world)
                yield self._gathered(each, local, end - begin)
                begin = end

    def _gathered(self, part: torch.Tensor, local: int, rows: int) -> torch.Tensor:
        """`rows` of a whole table, of which each rank gives its own; the first is one of those
        whose number is divisible by the number of ranks."""
        whole = part.new_empty(rows, *part.shape[1:])
        for rank, owned in enumerate(self._ranks.gather(part)):
            begin = (rank - local) % self._ranks.world
            whole[begin::self._ranks.world] = owned[:len(range(begin, rows, self._ranks.world))]
        return whole


@entries_on_host
class ShardedEmbeddingBagCollection(HotEmbeddingBagCollection):
    """A `HotEmbeddingBagCollection` whose rows the ranks of `torch.distributed` share out.

    Every row lies in the host memory of one rank, its owner, and gets slots from the owner's
    device. Each rank calls the collection with samples of its own. Lookups and, at
    `optimizer.step()`, gradients go to the owners: an owner adds the ranks' gradients of a row in
    rank order, divides by the number of ranks and only then squares and updates. An owner's device
    counts the lookups of all ranks, so that the ranks agree on hot rows.

    Tables, state and, with `average_gradients` for the dense part, losses have the bits of one rank
    that takes the ranks' batches one after the other, adds up their gradients and divides the loss
    of each by their number, if that is a power of two; one rank that takes all samples as one batch
    adds in another order, and differs by rounding.

    Tables with `ids="any"` have the rows of one process that takes all samples as one batch, as
    `SharedIdMaps` says.

    Tables with a `path` have their rows in a folder of each rank in it, so that the ranks may be on
    several machines. A commit counts when all ranks have it; where some end before, all open the
    one before it. As many ranks open the folder as have trained it.

    All ranks make the same calls in the same order, with as many batches each: forward, prefetch,
    step, learn, `state_dict`, `changes`, `commit` and the like are collective, `close`, `abandon`
    and `flush` are not. `learn` returns the rows that have a slot at all ranks. Clipping and
    `statistics` see a rank's own gradients and lookups.

    Parameters
    ----------
    tables, device, mode, optimizer, lr, options
        As in `HotEmbeddingBagCollection`; every rank has a device of its own.
    ranks : ProcessGroup, optional
        All processes by default.

    Attributes
    ----------
    ranks : Ranks

    Raises
    ------
    Error
    """

    several_ranks = True

    def __init__(self, tables: Iterable[Any], device: Device | str | None = None,
                 mode: Mode | None = None, optimizer: OptimizerName | Rule = "sgd",
                 lr: float = 0.01, options: Options = DEFAULTS, *,
                 ranks: dist.ProcessGroup | None = None, **fields: Any) -> None:
        options = replace(options, **fields)
        tables, self.ranks = tuple(table_config(each) for each in tables), Ranks(ranks)
        if memory_on(options.slots_device).asynchronous:
            raise Error("ranks exchange rows through host memory, where the slots of tables of "
                        "several processes are, too: leave slots_device out")
        if options.cold != "gathered":
            raise Error("cold rows of several processes are gathered: leave cold out")
        super().__init__(tables, device, mode, optimizer, lr, options)
        self.staging.finite = AgreedFiniteCheck(self.ranks)

    def _make_groups(self, rule: Rule) -> list[TableGroup]:
        path, ranks = self._path, self.ranks
        folder = None if path is None else ranks.agree(
            lambda: folder_of_rank(path, ranks.rank, ranks.world), "tables on disk were not opened")
        self._sharding = Sharding(self.tables, rule, ranks.rank, ranks.world, folder,
                                  self.mode == "resident")
        return self._sharding.shards

    @property
    def _path(self) -> str | None:
        """Folder of the ranks' folders of tables on disk."""
        return next((str(config.path) for config in self.tables if config.path is not None), None)

    def _make_disk(self, groups: Sequence[TableGroup], rule: Rule, seed: int, depth: int) -> Disk:
        found: list[Disk] = []
        seed = common_seed(str(groups[0].configs[0].path), groups[0].numbers[0], seed, self.ranks)
        try:
            self.ranks.agree(
                lambda: found.append(Disk(groups, rule, seed, depth, self.tables,
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

    def _make_id_maps(self, own: OwnStore, seed: int | None, rule: Rule) -> IdMaps:
        return SharedIdMaps(self.tables, self.ranks.first(drawn_seed() if seed is None else seed),
                            self.contents, own, rule.initial, self.lifecycle,
                            self._sharding, self.ranks)

    def _make_cache(self) -> Cache:
        return ShardedCache(self.tables, self.mode, self.store, self.lifecycle, self.contents,
                            self.ranks)

    def _draw(self, groups: Sequence[TableGroup], seed: int | None) -> None:
        self._sharding.initialise(self.ranks.first(drawn_seed() if seed is None else seed))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Error("a ShardedEmbeddingBagCollection of hotrow cannot be copied or pickled: save "
                    "its state_dict(), which has whole tables")

    def abandon(self) -> None:
        """Release prefetched batches that will not be trained; not collective."""
        if self.id_maps is not None:
            self.id_maps.keep(0)
        self.store.abandon()


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
