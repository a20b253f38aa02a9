"""The tables of a collection as modules, each with its parameter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from operator import is_, is_not
from typing import Any, Self, cast

import torch
from torch import nn

from ...contract.errors import Error
from .contents import TableContents
from .lifecycle import Lifecycle


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
        if shown is not self._shown[0] or (
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
        tables = cast(Iterable[Table], self._modules.values())
        shown = [table._parameters["weight"] for table in tables]
        found = {each.requires_grad for each in shown if each is not None}
        # In each step without a call for each table, unless a table is in question.
        if (any(map(is_not, shown, [table._shown[0] for table in tables]))
                or any(map(is_, shown, repeat(None)))
                or [*map(torch.Tensor.data_ptr, cast(Any, shown))] != [
                    table._address for table in tables]):
            found = {table.trains(each) for table, each in zip(tables, shown, strict=True)}
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
