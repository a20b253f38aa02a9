"""Mode `resident`: the tables themselves, in the trainer's memory, without a device."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from ...contract.errors import Error
from ...kernels.grouping import Grouper
from ...kernels.updating import update_rows
from ..features.bags import Bags
from ..features.configs import TableGroup
from ..features.grouping import Request
from ..memory.slot_memory import SlotMemory
from ..memory.tables import EmbeddingTables
from ..optim.arithmetic import Stepping
from ..optim.gradients import LocatedRows, Staged, StagedGradients
from ..optim.rounding import row_keys
from ..optim.rules import Rule
from .in_flight import PendingBackward

_CHUNK = 1 << 16  # rows


class ResidentStore:
    """Looks rows up in the tables and updates them there; `flush` writes those on disk that have
    changed.

    Attributes
    ----------
    groupers : list of Grouper, one per group
    """

    several_ranks, card, waiting, ahead = False, None, 0, 0
    on_card, statistics = (), None

    def __init__(self, groups: Iterable[TableGroup]) -> None:
        self.groups, self.slot_memory = tuple(groups), SlotMemory()
        self.groupers = [Grouper(len(group.tables.rows)) for group in self.groups]
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
                            grouper=self.groupers[each.group]) for each in request.segments]

    def apply(self, group: int, flat: torch.Tensor, sums: torch.Tensor, rule: Stepping,
              finite: torch.Tensor | None = None, distinct: bool = False) -> None:
        rows, changed = self.groups[group].tables.rows, self._changed[group]
        if changed is not None:
            changed.mark(flat)
        keys = None if rule.rounding_seed is None else row_keys(
            self.groups[group].kind_number, self.groups[group].whole_rows(flat))
        update_rows(rows.weights, flat, sums, rule, rows.state, keys, distinct)

    def step(self, staged: Sequence[StagedGradients], rule: Rule,
             finite: torch.Tensor | None = None) -> Callable[[], None]:
        def change() -> None:
            for group, each in enumerate(staged):
                if each.deferred is not None and self._changed[group] is None and (
                        each.deferred.step(rule)):
                    continue
                if each.values is not None:
                    flat = each.rows if each.places is None else each.places
                    self.apply(group, flat, each.values, rule, finite, distinct=True)
        return change

    def apply_bags(self, group: int, staged: Staged, rule: Rule) -> None:
        raise Error("mode resident has no card that pools rows")

    def coming(self, bags: Bags | None = None) -> Request | None:
        return None

    def open_batches(self) -> Iterator[tuple[Request, list[LocatedRows], PendingBackward]]:
        return iter(())

    def prefetch(self, request: Request) -> None: ...

    def observe(self, request: Request) -> None: ...

    def finish(self, holds_gradients: bool = False) -> None: ...

    def upload(self) -> None: ...

    def reset(self) -> None: ...

    def abandon(self) -> None: ...

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
