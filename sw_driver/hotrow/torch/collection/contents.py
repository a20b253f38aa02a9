"""The contents of a collection's tables, by name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import nn

from ...contract.errors import Error
from ..features.configs import TableGroup
from ..memory.tables import EmbeddingTables
from .lifecycle import Lifecycle

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


class _Unsaved(nn.Module):
    """What state dicts have by its collection or bag, which writes all tables or none."""

    def _save_to_state_dict(self, *_: Any) -> None: ...

    def _load_from_state_dict(self, *_: Any) -> None: ...


class Table(_Unsaved):
    """A table of a collection: `weight`, and `state` of the optimizer.

    In memory `weight` is an `nn.Parameter` over the rows, whose `grad` stays None.
    """

    def __init__(self, name: str, contents: TableContents, lifecycle: Lifecycle) -> None:
        super().__init__()
        self._name, self._contents, self._lifecycle = name, contents, lifecycle
        self._shown = (contents.parameter(name),)  # not by a second name of the parameter
        self._parameters["weight"] = self.parameter
        self._address = 0 if self.parameter is None else self.parameter.data_ptr()

    @property
    def parameter(self) -> nn.Parameter | None:
        """The parameter; None where the rows are not, or not only, in memory of this process."""
        return self._shown[0]

    def trains(self, shown: nn.Parameter | None) -> bool:
        """Whether the rows train by lookups of a module that shows a parameter as their weight.

        Raises
        ------
        Error
            Another parameter, or other memory, is in its place.
        """
        if shown is not self.parameter or (
                shown is not None and shown.data_ptr() != self._address):
            raise Error(f"the weight of table {self._name!r} was replaced or moved: lookups read "
                        f"the table, whatever module has another parameter in its place. Write "
                        f"into it in place, or leave the module out")
        return shown is None or shown.requires_grad

    @property
    def weight(self) -> torch.Tensor:
        """The rows [rows, dim], up to date."""
        self._lifecycle.flush()
        return self._contents.table(self._name)[0] if self.parameter is None else self.parameter

    @property
    def state(self) -> torch.Tensor | None:
        """State of the rows, up to date, or None."""
        self._lifecycle.flush()
        return self._contents.table(self._name)[1]

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Leave the rows where they are, with their dtype."""
        return self


class NamedTables(_Unsaved, nn.ModuleDict):
    """Tables by name, also as attributes: each is a `Table`.

    Parameters
    ----------
    names : sequence of str
    contents : TableContents
    lifecycle : Lifecycle
        Brings the tables up to date.
    """

    def __init__(self, names: Sequence[str], contents: TableContents,
                 lifecycle: Lifecycle) -> None:
        super().__init__()
        for name in names:  # by add_module() a name could be no method's
            self._modules[name] = Table(name, contents, lifecycle)

    def __getitem__(self, name: str) -> Table:
        found = self._modules[name]
        assert isinstance(found, Table)
        return found

    @property
    def train_rows(self) -> bool:
        """Whether lookups in all tables train rows.

        Raises
        ------
        Error
            In some they do and in others not; or as `Table.trains`.
        """
        tables = [self[name] for name in self]
        found = {table.trains(table._parameters["weight"]) for table in tables}
        if len(found) > 1:
            raise Error("some tables of a collection are frozen and others are not: freeze all of "
                        "them, by eval() where one has no parameter, or give each a collection")
        return found.pop()


@contextmanager
def without_weight(module: nn.Module) -> Iterator[None]:
    """Take the `weight` of a bag out of its parameters in this block."""
    held = {name: module._parameters.pop(name) for name in {"weight"} & {*module._parameters}}
    try:
        yield
    finally:
        module._parameters.update(held)
