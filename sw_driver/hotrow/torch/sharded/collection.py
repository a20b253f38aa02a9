"""Embedding tables that several processes train together: `ShardedEmbeddingBagCollection`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.distributed import ProcessGroup

from ...contract.errors import Error
from ...device import Device
from ..collection.collection import HotEmbeddingBagCollection, drawn_seed
from ..collection.contents import TableContents
from ..features.configs import table_config
from ..features.layout import FeatureLayout
from ..memory.slot_memory import memory_on
from ..memory.tables import digest_of
from ..optim.finite_check import FiniteCheck
from ..optim.row_optimizer import rule_of
from ..optim.rules import Rule
from ..store.fitting import check_fits
from .ranks import Ranks
from .sharding import Sharding
from .store import ShardedStore

T = TypeVar("T")


class ShardedContents(TableContents):
    """Whole tables, gathered from all ranks; every call but `assign` and `locate` is collective."""

    def __init__(self, sharding: Sharding, ranks: Ranks):
        super().__init__(sharding.spans)
        self._sharding, self._ranks = sharding, ranks

    def table(self, name: str) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Copies of one table: (weights [rows, dim], state or None), as large at every rank."""
        group, local = self.locate(name)
        rows = self._groups[group].tables.cardinalities[local]
        weights, state = self._sharding.shards[group].tables.table(local)
        return (self._gathered(weights, local, rows),
                None if state is None else self._gathered(state, local, rows))

    def assign(self, name: str, weights: torch.Tensor | None = None,
               state: torch.Tensor | None = None) -> None:
        group, local = self.locate(name)
        owned, _ = self._sharding.own(group, local)
        for here, given in zip(self._sharding.shards[group].tables.table(local), (weights, state),
                               strict=True):
            if given is not None:
                mine = given[owned]
                here[:len(mine)] = mine

    def sha256(self) -> str:
        return "-".join(
            digest_of(self.table(config.name)[part] for part in range(2)
                      for config in group.configs)
            for group in self._groups)

    def _gathered(self, part: torch.Tensor, local: int, rows: int) -> torch.Tensor:
        whole = part.new_empty(rows, *part.shape[1:])
        for rank, owned in enumerate(self._ranks.gather(part)):
            begin = (rank - local) % self._ranks.world
            whole[begin::self._ranks.world] = owned[:len(range(begin, rows, self._ranks.world))]
        return whole


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

    All ranks make the same calls in the same order, with as many batches each: forward, prefetch,
    step, learn, `state_dict` and the like are collective, `close`, `abandon` and `flush` are not.
    Clipping and `statistics` see a rank's own gradients and lookups.

    Parameters
    ----------
    tables, device, mode, optimizer, lr, seed, **options
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
                 mode: str = "scratchpipe", optimizer: Rule | str = "sgd", lr: float = 0.01, *,
                 seed: int | None = None, ranks: ProcessGroup | None = None,
                 bounds_check_mode: str = "fatal", is_weighted: bool = False, **options: Any):
        configs, shared = tuple(table_config(each) for each in tables), Ranks(ranks)
        if memory_on(options.get("slots_device", "cpu")).asynchronous:
            raise Error("ranks exchange rows through host memory, where the slots of tables of "
                        "several processes are, too: leave slots_device out")
        if options.get("cold", "gathered") != "gathered":
            raise Error("cold rows of several processes are gathered: leave cold out")
        for config in configs:
            if config.path is not None:
                raise Error(f"table {config.name!r} has the path {config.path!r}, and rows of "
                            f"several processes are in their memory: leave path out")
        rule = rule_of(optimizer, lr)
        check_fits(configs, rule, device, options.get("preset"), options.get("share", 1))
        sharding = Sharding(configs, rule, shared.rank, shared.world)
        super().__init__(configs, device, mode, rule, groups=sharding.shards, **options)
        self.ranks = shared
        self.layout = FeatureLayout(self.tables, sharding.spans, bounds_check_mode, is_weighted)
        self.store = ShardedStore(self.store, sharding, shared)
        self.contents = self.saved.contents = ShardedContents(sharding, shared)
        self._gradients.groups = tuple(sharding.spans)
        self._gradients.finite = AgreedFiniteCheck(shared)
        if options.get("initialise", True):
            sharding.initialise(shared.first(drawn_seed() if seed is None else seed))

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise Error("a ShardedEmbeddingBagCollection of hotrow cannot be copied or pickled: save "
                    "its state_dict(), which has whole tables")

    def agree(self, call: Callable[[], T], what: str) -> T:
        return self.ranks.agree(call, what)

    def access_counts(self) -> torch.Tensor | None:
        own = super().access_counts()
        counts, rank = self.ranks.gather_columns(
            torch.empty(3, 0, dtype=torch.int64) if own is None else own)
        if not counts.shape[1]:
            return None
        counts[1] = counts[1] * self.ranks.world + (rank - self._places(counts[0])) % (
            self.ranks.world)
        return counts

    @property
    def counters(self) -> int:
        return super().counters * self.ranks.world

    def set_access_counts(self, counts: torch.Tensor) -> None:
        if self.store.device is None:
            return
        mine = (counts[1] + self._places(counts[0])) % self.ranks.world == self.ranks.rank
        table, row, count = counts[:, mine]
        super().set_access_counts(torch.stack((
            table, torch.div(row, self.ranks.world, rounding_mode="floor"), count)))

    def _places(self, tables: torch.Tensor) -> torch.Tensor:
        """Place in its group of each of the device's tables int64[n], which decides on owners."""
        device = [self.store.device_table(number) for number in range(len(self.tables))]
        places = torch.zeros(max(device) + 1, dtype=torch.int64)
        places[device] = torch.tensor([self.contents.locate(each.name)[1] for each in self.tables])
        return places[tables]

    def parts(self) -> NoReturn:
        """Refused: the ranks have different popular samples, and lookups are collective."""
        raise Error("tables of several processes train batches whole: iterate the pipeline instead "
                    "of calling its train()")

    def abandon(self) -> None:
        self.store.abandon()

    def _adopt_writes(self) -> None:
        """The shards have no views that others write."""

    def learn(self, rows: Mapping[str, ArrayLike] | None = None, warmup_ratio: float | None = None,
              ids_freq_mapping: Mapping[str, ArrayLike] | None = None, *, limit: int | None = None,
              decay: int = 0) -> int:
        """As `HotEmbeddingBagCollection.learn`: each rank gives slots to rows that it owns.

        Returns
        -------
        int
            Rows that have a slot, at all ranks.
        """
        if self.mode == "resident":
            return 0
        own, counts = (None if given is None else {
            config.name: np.asarray(given[config.name])
            for config in self.tables if config.name in given}
            for given in (rows, ids_freq_mapping))
        if own is not None:
            own = {name: each[self._mine(name, each)] // self.ranks.world
                   for name, each in own.items()}
        if counts is not None:
            counts = {name: each[self._mine(name, np.arange(len(each)))]
                      for name, each in counts.items()}
        return self.ranks.total(self.agree(
            lambda: super(ShardedEmbeddingBagCollection, self).learn(
                own, warmup_ratio, counts, limit=limit, decay=decay),
            "no slots were given, because of the rows"))

    def _mine(self, name: str, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether this rank owns each of a table's rows: bool[n]."""
        _, local = self.contents.locate(name)
        return (rows + local) % self.ranks.world == self.ranks.rank


class AgreedFiniteCheck(FiniteCheck):
    """A check whose refusal every rank raises."""

    def __init__(self, ranks: Ranks):
        self._ranks = ranks

    def check(self, batch: int, staged: Sequence[Any]) -> None:
        self._ranks.agree(lambda: FiniteCheck.check(self, batch, staged),
                          f"batch {batch}: nothing was applied, because of a gradient")
