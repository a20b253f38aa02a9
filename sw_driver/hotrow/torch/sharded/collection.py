"""Embedding tables that several processes train together: `ShardedEmbeddingBagCollection`."""

import numpy as np
import torch

from ...errors import Error
from ..collection.collection import HotEmbeddingBagCollection
from ..features.configs import Places
from ..memory.slot_memory import memory_on
from ..memory.tables import digest_of
from ..optim.arithmetic import OPTIMIZERS
from .ranks import Ranks
from .sharding import Sharding
from .store import ShardedStore


class ShardedEmbeddingBagCollection(HotEmbeddingBagCollection):
    """A `HotEmbeddingBagCollection` whose rows are dealt to the ranks of `torch.distributed`.

    Every row lies in the host memory of one rank, and gets its slots from that rank's device. Each
    rank calls the collection with samples of its own; rows are asked of their owners, and gradients
    go to them at `optimizer.step()`: an owner adds the ranks' gradients of a row in rank order,
    divides by the number of ranks and only then squares and updates. An owner's device counts the
    lookups of all ranks, so that ranks agree on which rows are hot.

    Tables, state and, where the dense part is averaged by `average_gradients`, losses have the bits
    of one rank that takes the ranks' batches one after the other, adds up their gradients and
    divides the loss of each by their number, if that is a power of two; one rank that takes all
    samples as one batch adds in another order, and differs by rounding.

    All ranks make the same calls in the same order, with as many batches each: forward, prefetch,
    step, learn, `state_dict` and the like are collective, `close`, `abandon` and `flush` are not.
    Clipping and `statistics` see a rank's own gradients and lookups.

    Parameters
    ----------
    tables, device, mode, optimizer, lr, seed, **options
        As of `HotEmbeddingBagCollection`; every rank has a device of its own.
    ranks : ProcessGroup, optional
        All processes unless it is given.

    Members
    -------
    ranks : Ranks

    Raises
    ------
    Error
    """

    def __init__(self, tables, device=None, mode="scratchpipe", optimizer="sgd", lr=0.01, *,
                 seed=None, ranks=None, **options):
        tables, ranks = tuple(tables), Ranks(ranks)
        if memory_on(options.get("slots_device", "cpu")).late:
            raise Error("ranks exchange rows through host memory, where the slots of tables of "
                        "several processes are, too: leave slots_device out")
        rule = OPTIMIZERS[optimizer](lr) if isinstance(optimizer, str) else optimizer
        sharding = Sharding(tables, rule, ranks.rank, ranks.world)
        super().__init__(tables, device, mode, rule, groups=sharding.shards, **options)
        self.ranks, self._sharding, self._groups = ranks, sharding, sharding.spans
        self._places = Places(self._groups)
        self.store = ShardedStore(self.store, sharding, ranks)
        sharding.initialise(ranks.first(torch.seed() % (1 << 62) if seed is None else seed))

    def apply_gradients(self):
        """Apply what all ranks have staged: `optimizer.step()`."""
        failure = None
        try:
            for at, staged in enumerate(self._staged):
                if staged.values is not None:
                    self._check_finite(at, staged)
        except Error as error:
            failure = error
        failed = self.ranks.least(self.ranks.world if failure is None else self.ranks.rank)
        if failure is not None:
            raise failure
        if failed < self.ranks.world:
            raise Error(f"batch {self.batches - 1}: a gradient of rank {failed} is not finite, and "
                        f"nothing was applied: see the error of that rank")
        for at, staged in enumerate(self._staged):
            rows, sums = staged.rows, staged.values
            if sums is None:
                rows, sums = rows[:0], torch.empty(0, self._groups[at].kind.dim)
            self.store.apply(at, rows, sums, self.optimizer.rule)
            staged.clear()
        self.store.finish()

    def finish(self):
        self.store.settle(any(staged.values is not None for staged in self._staged))

    def abandon(self):
        """Let go of prefetched batches that will not be trained."""
        self.store.abandon()

    def parts(self):
        """Refused: every rank has other popular samples, and lookups are made together."""
        raise Error("tables of several processes train batches whole: iterate the pipeline instead "
                    "of calling its train()")

    def learn(self, rows=None, warmup_ratio=None, ids_freq_mapping=None):
        """As `HotEmbeddingBagCollection.learn`: each rank gives slots to rows that it owns.

        Returns
        -------
        int
            Rows that found a slot, at all ranks.
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
        return self.ranks.total(super().learn(own, warmup_ratio, counts))

    def observe(self, inputs, offsets=None, per_sample_weights=None):
        """Let the owners' devices count the lookups of a batch that does not train."""
        if self.mode != "resident":
            request, _ = self._request(self.bags(inputs, offsets, per_sample_weights))
            bags = self.store.route(request).inner.bags
            if len(bags.ids):
                self.store.device.observe(bags.device_batch(self.store.registered))

    def table(self, name):
        """One table whole, gathered from all ranks: (weights [rows, dim], state or None).

        Up to date only after `flush` of every rank. A copy: it takes the table's memory at every
        rank.
        """
        group, local = self._locate(name)
        span, shard = self._groups[group], self._sharding.shards[group]
        rows = span.tables.cardinalities[local]
        return tuple(None if part is None else self._joined(part, local, rows)
                     for part in shard.tables.table(local))

    def sha256(self):
        """Digest of the tables whole, as one rank's; after `flush` of every rank."""
        return "-".join(
            digest_of(self.table(config.name)[part] for part in range(2)
                      for config in group.configs)
            for group in self._groups)

    def _joined(self, part, local, rows):
        whole = part.new_empty(rows, *part.shape[1:])
        for rank, owned in enumerate(self.ranks.gather(part)):
            begin = (rank - local) % self.ranks.world
            whole[begin::self.ranks.world] = owned[:len(range(begin, rows, self.ranks.world))]
        return whole

    def _set(self, name, weights=None, state=None):
        group, local = self._locate(name)
        owned, count = self._sharding.own(group, local)
        for here, given in zip(self._sharding.shards[group].tables.table(local), (weights, state),
                               strict=True):
            if given is not None:
                here[:count] = given[owned]

    def _locate(self, name):
        """(group, place in it) of the table of that name."""
        for at, group in enumerate(self._groups):
            for local, config in enumerate(group.configs):
                if config.name == name:
                    return at, local
        raise Error(f"there is no table {name!r}: expected one of "
                    f"{', '.join(config.name for config in self.tables)}")

    def _mine(self, name, rows):
        """Which of a table's rows this rank owns: bool[n]."""
        _, local = self._locate(name)
        return (rows + local) % self.ranks.world == self.ranks.rank
