"""The contents of a collection's tables, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace

import torch

from ...contract.errors import Error
from ..features.configs import TableGroup
from ..memory.tables import EmbeddingTables
from .lifecycle import Lifecycle
from .rows_parameter import RowsParameter
from .table_view import TableView

Contents = tuple[torch.Tensor, torch.Tensor | None]  # weights [rows, dim], state


class TableContents:
    """Views of the tables of some groups; slots may hold later values.

    Attributes
    ----------
    copied : bool
        Whether the views are copies.
    """

    copied = False

    def __init__(self, groups: Sequence[TableGroup]) -> None:
        self._groups = tuple(groups)

    def _tables(self, group: int) -> EmbeddingTables:
        """The tables of a group that this process has."""
        return self._groups[group].tables

    def table(self, name: str) -> Contents:
        """One table: (weights [rows, dim], state or None)."""
        group, local = self.locate(name)
        return self._groups[group].tables.table(local)

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


class NamedTables(Mapping[str, SimpleNamespace]):
    """Tables by name, also as attributes, each with `weight` and `state`, which stay up to date.

    Parameters
    ----------
    names : sequence of str
    contents : TableContents
    lifecycle : Lifecycle
        Brings the tables up to date.
    rows : RowsParameter
        Of the collection; its `requires_grad` is that of every weight.
    """

    def __init__(self, names: Sequence[str], contents: TableContents, lifecycle: Lifecycle,
                 rows: RowsParameter) -> None:
        self._names, self._contents = tuple(names), contents
        self._lifecycle, self._rows = lifecycle, rows
        self._views: dict[tuple[str, int], TableView] = {}  # one object as long as it shows rows

    def __getitem__(self, name: str) -> SimpleNamespace:
        if name not in self._names:
            raise KeyError(name)
        weight, state = self.table(name, self._rows)
        return SimpleNamespace(weight=weight, state=state)

    def __getattr__(self, name: str) -> SimpleNamespace:
        if name.startswith("__") or name not in self._names:
            raise AttributeError(f"there is no table {name!r}")
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def table(self, name: str, rows: RowsParameter | None = None,
              ) -> tuple[TableView, TableView | None]:
        """One table: (weights [rows, dim], state or None).

        `rows` is the RowsParameter of the module whose `weight` the weights are, if any.
        """
        copied = self._contents.copied
        if copied:
            self._lifecycle.flush()
        weights, state = self._contents.table(name)
        view = self._views.get((name, id(rows)))
        if view is not None and view.shows(weights, self._lifecycle):
            view.follow()
        else:
            view = TableView.of(weights, self._lifecycle, rows, copied)
        if rows is not None and not copied:
            self._views[name, id(rows)] = view
        return (view,
                None if state is None else TableView.of(state, self._lifecycle, copied=copied))

    def saved(self, name: str, rows: RowsParameter | None = None) -> TableView:
        """The rows of a table for a state dict, contiguous: a copy where state lies between."""
        self._lifecycle.flush()
        weights = self._contents.table(name)[0]
        if rows is not None and weights.is_contiguous():
            return self.table(name, rows)[0]
        return TableView.of(weights, self._lifecycle, rows, self._contents.copied,
                            torch.Tensor.contiguous)
