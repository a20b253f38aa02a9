"""Contents of tables whose rows several processes share out: `ShardedContents`."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..collection.contents import Contents, TableContents
from ..memory.tables import EmbeddingTables, digest_of
from .ranks import Ranks
from .sharding import Sharding


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
