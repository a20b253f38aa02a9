"""The owner of each row of tables that several processes train."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from ...kernels.drawing import draw_rows
from ..features.configs import TableConfig, TableGroup, group_tables
from ..memory.tables import EmbeddingTables
from ..optim.rules import Rule


class Sharding:
    """Round-robin ownership of rows, so that every rank owns about as many lookups.

    Row r of the t-th table of a group belongs to rank (r + t) mod world, as its row r // world.
    A row's *code* is its index among all rows of its owner, group after group.

    Parameters
    ----------
    configs : sequence of TableConfig
    rule : SGD, RowwiseAdagrad or Adagrad
    rank, world : int
    folder : str, optional
        Of this rank's rows of tables on disk.
    whole : bool
        Whether rows of tables on disk are in memory as well.

    Attributes
    ----------
    spans : list of TableGroup
        The whole tables, without memory: they number flat rows only.
    shards : list of TableGroup
        The rank's own rows; a table has as many at every rank, and the last may be padding.
    first : int64[groups + 1]
        First code of each group.
    codes : int
        Number of codes of a rank.
    """

    def __init__(self, configs: Sequence[TableConfig], rule: Rule, rank: int, world: int,
                 folder: str | None = None, whole: bool = True):
        self.rank, self.world = rank, world
        self.shards = group_tables([
            replace(config, num_embeddings=-(-config.num_embeddings // world), ids="rows",
                    admission=None, expiry=None, path=config.path and folder)
            for config in configs], rule, whole)
        self.spans = [
            TableGroup(shard.numbers, configs, rule, EmbeddingTables(
                [configs[number].num_embeddings for number in shard.numbers], shard.kind.dim,
                dtype=shard.kind.dtype, device="meta"))
            for shard in self.shards]
        for group, shard in enumerate(self.shards):
            shard.whole_rows = partial(self._whole_rows, group)
        self.first = np.cumsum([0, *(len(shard.tables.rows) for shard in self.shards)])
        self.codes = int(self.first[-1])

    def route(self, group: int, flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(owner, code) of flat rows int64[n] of a whole group; int64[n] both."""
        rows = self.spans[group].tables.locate(flat)
        table, row = rows.table.astype(np.int64), rows.row.astype(np.int64)
        code = self.first[group] + self.shards[group].tables.first[table] + row // self.world
        return torch.from_numpy((row + table) % self.world), torch.from_numpy(code)

    def _whole_rows(self, group: int, flat: torch.Tensor) -> torch.Tensor:
        """Flat rows in whole tables of flat rows int64[n] of this rank."""
        rows = self.shards[group].tables.locate(flat)
        table, row = rows.table.astype(np.int64), rows.row.astype(np.int64)
        return torch.from_numpy(self.spans[group].tables.first[table] + row * self.world
                                + (self.rank - table) % self.world)

    def own(self, group: int, local: int) -> tuple[slice, int]:
        """The rows of a group's table that this rank owns: a slice of the table; their number."""
        rows = self.spans[group].tables.cardinalities[local]
        begin = (self.rank - local) % self.world
        return slice(begin, rows, self.world), len(range(begin, rows, self.world))

    def part(self, shard: TableGroup, local: int) -> tuple[int, int, int] | None:
        """First, step and rows of the whole table of which a shard's table is a part; None of one
        rank, which has the whole."""
        if self.world == 1:
            return None
        rows = self.spans[self.shards.index(shard)].tables.cardinalities[local]
        return (self.rank - local) % self.world, self.world, rows

    def initialise(self, seed: int) -> None:
        """Give the rank's rows in memory the contents that they have in whole tables with this
        seed."""
        for group, shard in enumerate(self.shards):
            if shard.tables.disk is not None:  # which draws rows that were never trained
                continue
            for local, number in enumerate(shard.numbers):
                owned, count = self.own(group, local)
                rows = self.spans[group].tables.cardinalities[local]
                draw_rows(shard.tables.table(local)[0][:count], seed + number, rows**-0.5,
                          owned.start, self.world)
