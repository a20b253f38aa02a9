"""The store of a collection's tables on disk."""

import io
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...contract.errors import Error
from ...tables import FileBase, Store, Table, TensorBase, plan_memory
from ..features.configs import TableConfig, TableGroup
from ..memory.disk_rows import DiskRows
from ..optim.rules import Rule

Part = Callable[[TableGroup, int], tuple[int, int, int] | None]


class Disk:
    """Opens the store of some groups, whose tables get its rows, and commits these.

    Parameters
    ----------
    groups : sequence of TableGroup
        Those whose tables have a path.
    rule : Rule
    seed : int
        Of rows that were never trained, of a store that is made.
    depth : int
        Batches on their way.
    configs : sequence of TableConfig
        All tables of the collection.
    part : callable, optional
        Of a group and the place of a table in it: `Table.part`, where processes share the rows.

    Attributes
    ----------
    store : hotrow.tables.Store
    plan : MemoryPlan or None
        Where a table has a limit of memory.

    Raises
    ------
    Error
        As `hotrow.tables.Store`, or the folder cannot be made or read.
    """

    def __init__(self, groups: Sequence[TableGroup], rule: Rule, seed: int, depth: int,
                 configs: Sequence[TableConfig], part: Part | None = None) -> None:
        self._groups, self._path = tuple(groups), str(groups[0].configs[0].path)
        self._kinds = {config.name: config.ids for config in configs if config.path is not None}
        tables = [_table(group, local, rule, seed, part and part(group, local))
                  for group in groups for local in range(len(group.configs))]
        limit = next((config.memory for group in groups for config in group.configs
                      if config.memory is not None), None)
        self.plan = None if limit is None else plan_memory(limit, tables, depth=depth)
        if self.plan is not None:
            logging.getLogger("hotrow.torch").info("tables in %s: %s", self._path, self.plan)
        try:
            tail = 64 << 20 if self.plan is None else self.plan.tail
            self.store = Store(self._path, tables, tail)
        except OSError as error:
            raise Error(f"the folder {self._path} of tables cannot be used ({error.strerror}): "
                        f"name a folder that this user may write") from error
        kinds = self.parts().get("kinds", self._kinds)
        if kinds != self._kinds:
            self.store.close()
            raise Error(f"the tables in {self._path} have the ids {kinds}, and {self._kinds} were "
                        f"asked for: rows belong to their ids, so give the tables the same")
        for group in groups:
            group.tables.disk = DiskRows(
                self.store, [config.name for config in group.configs],
                group.tables.first.tolist(), group.kind,
                self.store.number > 0 or any(config.base for config in group.configs))

    @property
    def changed(self) -> bool:
        """Whether rows were appended since the last commit."""
        return any(disk.changed for disk in self._rows)

    @property
    def closed(self) -> bool:
        """Whether the store is closed."""
        return any(disk.closed for disk in self._rows)

    @property
    def names(self) -> list[str]:
        """Of the tables."""
        return [config.name for group in self._groups for config in group.configs]

    @property
    def path(self) -> str:
        """Folder of the store."""
        return self._path

    def commit(self, parts: dict[str, Any], keep: str | None = None, step: int = 0,
               hold: int | None = None) -> int:
        """Commit the appended rows with the parts beside them: the number of the commit. Other
        arguments are those of `hotrow.tables.Store.commit`."""
        file = io.BytesIO()
        try:
            torch.save({**parts, "kinds": self._kinds}, file)
            torch.load(io.BytesIO(file.getbuffer()), weights_only=True)
        except Exception as error:
            what = str(error).partition("\n")[0] or type(error).__name__
            raise Error(f"nothing was committed, because what belongs to the rows could not be "
                        f"loaded again ({what}): give state_dict()s, tensors, and numbers, "
                        f"strings, lists and dicts of Python") from error
        number = self.store.commit(file.getvalue(), step, keep, hold)
        for disk in self._rows:
            disk.changed = False
        return number

    def parts(self) -> dict[str, Any]:
        """The parts of the open commit; empty without one."""
        dense = self.store.dense()
        if dense is None:
            return {}
        found: dict[str, Any] = torch.load(io.BytesIO(dense), weights_only=True)
        return found

    def rollback(self, number: int) -> None:
        """Open an earlier commit; what was appended since is gone."""
        self.store.rollback(number)
        for disk in self._rows:
            disk.changed = False

    def close(self) -> None:
        """Close the store without a commit."""
        for disk in self._rows:
            disk.closed = True
        self.store.close()

    @property
    def _rows(self) -> list[DiskRows]:
        return [group.tables.disk for group in self._groups if group.tables.disk is not None]


def _table(group: TableGroup, local: int, rule: Rule, seed: int,
           part: tuple[int, int, int] | None) -> Table:
    config, kind = group.configs[local], group.kind
    whole = config.num_embeddings if part is None else part[2]
    columns = kind.used - kind.dim if kind.state == "element" else None
    return Table(
        config.name, config.num_embeddings, config.embedding_dim, seed + group.numbers[local],
        whole**-0.5, str(config.dtype).removeprefix("torch."), kind.state, columns,
        kind.width, rule.initial if kind.state else 0.0, rule.name, _base(config), part)


def _base(config: TableConfig) -> TensorBase | FileBase | None:
    if config.tensor is not None:
        return TensorBase(config.base, config.tensor)
    return FileBase(config.base[0]) if config.base else None
