"""Maps of ids of tables whose rows several processes share out: `SharedIdMaps`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...contract.errors import Error
from ..collection.contents import TableContents
from ..collection.id_batches import AnyIds, Assignment
from ..collection.id_maps import IdMaps
from ..collection.lifecycle import Lifecycle
from ..features.bags import Bags
from ..features.configs import TableConfig
from ..store.base import OwnStore
from .ranks import Ranks
from .sharding import Sharding


class SharedIdMaps(IdMaps):
    """The maps of all ids at every rank, each planned on the batch of all ranks.

    Before a batch is planned, every rank gets the ids of all: feature after feature, in each those
    of rank 0, then of rank 1, .... So every rank has equal maps, and they are those of one process
    that takes the ranks' samples as one batch: rows, counts, ages, the log and the draws of
    admission are the same with any number of ranks, and a state that some ranks saved is that of
    any other number. A rank looks up its own part. An owner writes its rows that begin from seed
    and id, which every rank knows.

    Each rank sends 8 bytes an id of such tables to every other rank, as many ids as the rank with
    most has, and each plans all ids and keeps 32 bytes a row. In return lookups of `eval()`,
    checkpoints and exports need no exchange of ids. A map at one rank for each table would send an
    id once, and its row back, and save memory, but no time: the others wait while it plans. A map
    divided by the ids' hashes would save both, but its parts would fill and expire differently with
    each number of ranks.

    Parameters
    ----------
    tables, seed, contents, store, initial, lifecycle
        As in `IdMaps`; the same at all ranks.
    sharding : Sharding
    ranks : Ranks
    """

    def __init__(self, tables: Sequence[TableConfig], seed: int, contents: TableContents,
                 store: OwnStore, initial: float, lifecycle: Lifecycle, sharding: Sharding,
                 ranks: Ranks) -> None:
        super().__init__(tables, seed, contents, store, initial, lifecycle)
        self._sharding, self._ranks = sharding, ranks

    def _ids(self, bags: Bags) -> AnyIds:
        own = super()._ids(bags)
        features = len(own.counts)
        planned = [number for each in self.maps.values() for number in (each.batch, len(each))]
        head = torch.tensor([own.lookups, *own.counts, *planned])
        columns, rank = self._ranks.gather_columns(torch.cat((head, own.ids))[None])
        parts = columns[0].split(torch.bincount(rank, minlength=self._ranks.world).tolist())
        heads = torch.stack([part[:len(head)] for part in parts])
        self._check(heads[:, 1 + features:])
        counts = heads[:, 1:1 + features]
        by_rank = [part[len(head):].split(count) for part, count in zip(
            parts, counts.tolist(), strict=True)]
        ids = [part[feature] for feature in range(features) for part in by_rank]
        return AnyIds(own.tables, counts.sum(0).tolist(), torch.cat([own.ids[:0], *ids]),
                      int(heads[:, 0].sum()), counts[:self._ranks.rank].sum(0).tolist())

    def _check(self, planned: torch.Tensor) -> None:
        """Raise Error if the ranks' maps differ: batches and ids of each, int64[world, 2 maps]."""
        wrong = (planned != planned[0]).any(1).nonzero()
        if len(wrong):
            rank = int(wrong[0])
            raise Error(f"the maps of ids of ranks 0 and {rank} differ: they have batches and ids "
                        f"{planned[0].tolist()} and {planned[rank].tolist()}. Load the same "
                        f"state_dict() at all ranks")

    def _repetition(self, bags: Bags) -> None:
        """None: the ranks could differ, and their store takes a repeated batch as another."""

    def _recorded(self, lookups: int) -> bool:
        return True  # other ranks may have lookups

    def _write(self, number: int, rows: Sequence[int]) -> None:
        group, first = self._contents.first(self._tables[number].name)
        owner, code = self._sharding.route(group, torch.tensor(rows) + first)
        mine = owner == self._ranks.rank
        if bool(mine.any()):
            own = [row for row, is_mine in zip(rows, mine.tolist(), strict=True) if is_mine]
            self._store.apply(group, code[mine] - int(self._sharding.first[group]),
                                  self._initial(number, own), Assignment(self._initial_state))
