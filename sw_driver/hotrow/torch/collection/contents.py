"""The contents of a collection's tables, by name."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import nn

from ...contract.errors import Error
from ..features.configs import TableGroup
from ..memory.tables import EmbeddingTables

Contents = tuple[torch.Tensor, torch.Tensor | None]  # weights [rows, dim], state


class TableContents:
    """The tables of some groups; slots may hold later values.

    Parameters
    ----------
    groups : sequence of TableGroup
    on_card : collection of str
        Names of those that a card has, too.
    """

    def __init__(self, groups: Sequence[TableGroup], on_card: Collection[str] = ()) -> None:
        self._groups, self._on_card = tuple(groups), on_card

    def _tables(self, group: int) -> EmbeddingTables:
        """The tables of a group that this process has."""
        return self._groups[group].tables

    def table(self, name: str) -> Contents:
        """One table: (weights [rows, dim], state or None)."""
        group, local = self.locate(name)
        return self._groups[group].tables.table(local)

    def parameter(self, name: str) -> nn.Parameter | None:
        """The weights of a table as a parameter; None if it is on disk or on a card."""
        if name in self._on_card or self.on_disk(name):
            return None
        return nn.Parameter(self.table(name)[0])

    def rows(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """Copies of the weights of rows int64[n] of one table: [n, dim]."""
        group, local = self.locate(name)
        tables = self._groups[group].tables
        if tables.in_memory or tables.disk is None:
            return self.table(name)[0][rows]
        return tables.disk.read(rows + int(tables.first[local])).weights

    def exists(self, name: str) -> bool:
        """Whether the table is on disk, where its rows have contents."""
        disk = self._tables(self.locate(name)[0]).disk
        return disk is not None and disk.existed

    def state_shape(self, name: str) -> list[int] | None:
        """Shape of the state of one table; None without any."""
        group, local = self.locate(name)
        tables = self._groups[group].tables
        state = tables.rows.state
        return None if state is None else [tables.cardinalities[local], *state.shape[1:]]

    def on_disk(self, name: str) -> bool:
        """Whether the table is on disk."""
        return self._tables(self.locate(name)[0]).disk is not None

    def check_open(self) -> None:
        """Raise Error if tables on disk are closed or belong to another process."""
        for group in range(len(self._groups)):
            disk = self._tables(group).disk
            if disk is not None:
                disk.check_open()

    def assign(self, name: str, weights: torch.Tensor | None = None,
               state: torch.Tensor | None = None) -> None:
        """Write one table, or its first rows, while no slot holds a row of it.

        Raises
        ------
        Error
            Tables on disk are closed or belong to another process.
        """
        self.check_open()
        group, local = self.locate(name)
        tables = self._groups[group].tables
        if not tables.in_memory and tables.disk is not None:
            tables.disk.assign(int(tables.first[local]), weights, state)
            return
        for here, given in zip(self.table(name), (weights, state), strict=True):
            if given is not None:
                assert here is not None, "a table without state gets none"
                here[:len(given)].copy_(given)

    def sha256(self) -> str:
        """Digests of all rows, then of all state, group after group."""
        return "-".join(group.tables.sha256() for group in self._groups)

    def first(self, name: str) -> tuple[int, int]:
        """Group of the table of that name, and flat row of its row 0."""
        group, local = self.locate(name)
        return group, int(self._groups[group].tables.first[local])

    def locate(self, name: str) -> tuple[int, int]:
        """(group, place in the group) of the table of that name."""
        for index, group in enumerate(self._groups):
            for local, config in enumerate(group.configs):
                if config.name == name:
                    return index, local
        names = (config.name for group in self._groups for config in group.configs)
        raise Error(f"there is no table {name!r}: expected one of {', '.join(names)}")
