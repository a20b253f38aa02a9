"""Mode `resident`: the tables themselves, in the trainer's memory, without a device."""

from collections.abc import Callable, Iterable

import torch

from ...kernels.grouping import Grouper
from ...kernels.updating import update_rows
from ..features.configs import TableGroup
from ..features.grouping import Request
from ..memory.rows import Rows
from ..memory.tables import EmbeddingTables
from ..optim.arithmetic import Stepping
from ..optim.gradients import LocatedRows, StagedGradients
from ..optim.rounding import row_keys
from ..optim.rules import Rule
from .base import PendingBackward, Store

_CHUNK = 1 << 16  # rows


class ResidentStore(Store):
    """Looks rows up in the tables and updates them there; `flush` writes those on disk that have
    changed."""

    def __init__(self, groups: Iterable[TableGroup]) -> None:
        super().__init__(groups)
        self._groupers = [Grouper(len(group.tables.rows)) for group in self.groups]
        self._changed = [None if group.tables.disk is None else _Changed(group.tables)
                         for group in self.groups]

    def take(self, request: Request,
             begin: Callable[[], None] | None = None) -> tuple[list[LocatedRows], PendingBackward]:
        located = self.look(request)
        if begin is not None:
            begin()
        return located, PendingBackward()

    def look(self, request: Request) -> list[LocatedRows]:
        return [LocatedRows(self.groups[each.group].tables.rows, each.flat,
                            grouper=self._groupers[each.group]) for each in request.segments]

    def read(self, group: int, flat: torch.Tensor) -> Rows:
        tables = self.groups[group].tables
        return tables.rows.take(tables.kind, flat)

    def apply(self, group: int, flat: torch.Tensor, sums: torch.Tensor, rule: Stepping,
              finite: torch.Tensor | None = None) -> None:
        rows, changed = self.groups[group].tables.rows, self._changed[group]
        if changed is not None:
            changed.mark(flat)
        keys = None if rule.rounding_seed is None else row_keys(
            self.groups[group].kind_number, self.groups[group].whole_rows(flat))
        with self.stepping(group):
            update_rows(rows.weights, flat, sums, rule, rows.state, keys)

    def apply_staged(self, group: int, staged: StagedGradients, rule: Rule,
                     finite: torch.Tensor | None = None) -> None:
        assert staged.values is not None, "nothing is staged"
        flat = staged.rows if staged.places is None else staged.places
        self.apply(group, flat, staged.values, rule, finite)

    def flush(self) -> None:
        for each in self._changed:
            if each is not None and not each.closed:
                each.write()

    def close(self) -> None:
        self.flush()

    def reload(self) -> None:
        for each in self._changed:
            if each is not None:
                each.read()


class _Changed:
    """Rows of tables on disk whose copies in memory have changed: `rows`, bool[R].

    A write of others into the memory counts as one of all rows.
    """

    def __init__(self, tables: EmbeddingTables) -> None:
        self._tables, self.rows = tables, torch.zeros(len(tables.rows), dtype=torch.bool)
        self.read()

    def mark(self, flat: torch.Tensor) -> None:
        """Flat rows, integers [n], change."""
        assert self._tables.disk is not None
        self._tables.disk.check_open()
        self.rows[flat.long()] = True

    @property
    def closed(self) -> bool:
        """Whether the store on disk is."""
        return self._tables.disk is None or self._tables.disk.closed

    @property
    def _versions(self) -> list[int]:
        rows = self._tables.rows
        return [each._version for each in (rows.array, rows.side) if each is not None]

    def read(self) -> None:
        """Read all rows."""
        tables = self._tables
        assert tables.disk is not None
        for first, count in zip(tables.first.tolist(), tables.cardinalities, strict=True):
            for part, rows in tables.disk.scan(first, count):
                tables.rows.put(slice(first + part.start, first + part.stop), rows)
        self.rows.zero_()
        self._known = self._versions

    def write(self) -> None:
        """Append what has changed to the log."""
        tables = self._tables
        assert tables.disk is not None
        everything = self._versions != self._known
        for first, count in zip(tables.first.tolist(), tables.cardinalities, strict=True):
            for begin in range(first, first + count, _CHUNK):
                here = slice(begin, min(begin + _CHUNK, first + count))
                flat = torch.arange(here.start, here.stop)
                if not everything:
                    flat = flat[self.rows[here]]
                tables.disk.append(flat, tables.rows.take(tables.kind, flat))
        self.rows.zero_()
        self._known = self._versions
