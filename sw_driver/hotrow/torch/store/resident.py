"""Mode `resident`: the tables themselves, in the trainer's memory, without a device."""

from collections.abc import Callable, Iterable

import torch

from ...kernels.grouping import Grouper
from ...kernels.updating import update_rows
from ..features.configs import TableGroup
from ..features.grouping import Request
from ..memory.read_ahead import ReadAhead
from ..memory.rows import Rows
from ..optim.arithmetic import Stepping
from ..optim.gradients import LocatedRows, StagedGradients
from ..optim.rounding import row_keys
from ..optim.rules import Rule
from .base import PendingBackward, Store


class ResidentStore(Store):
    """Looks rows up in the tables and updates them there."""

    def __init__(self, groups: Iterable[TableGroup]) -> None:
        super().__init__(groups)
        self._reads = ReadAhead(group.tables for group in self.groups)
        self._groupers = [Grouper(len(group.tables.rows)) for group in self.groups]

    def prefetch(self, request: Request) -> None:
        for segment in request.segments:
            self._reads.begin(segment.group, segment.flat)

    def take(self, request: Request,
             begin: Callable[[], None] | None = None) -> tuple[list[LocatedRows], PendingBackward]:
        located = self.look(request)
        if begin is not None:
            begin()
        return located, PendingBackward()

    def look(self, request: Request) -> list[LocatedRows]:
        for segment in request.segments:
            self._reads.now(segment.group, segment.flat)
        return [LocatedRows(self.groups[each.group].tables.rows, each.flat,
                            grouper=self._groupers[each.group]) for each in request.segments]

    def read(self, group: int, flat: torch.Tensor) -> Rows:
        tables = self.groups[group].tables
        return tables.rows.take(tables.kind, flat)

    def apply(self, group: int, flat: torch.Tensor, sums: torch.Tensor, rule: Stepping,
              finite: torch.Tensor | None = None) -> None:
        self.groups[group].tables.check_owner()
        rows = self.groups[group].tables.rows
        keys = None if rule.rounding_seed is None else row_keys(
            group, self.groups[group].whole_rows(flat))
        with self.stepping(group):
            update_rows(rows.weights, flat, sums, rule, rows.state, keys)

    def apply_staged(self, group: int, staged: StagedGradients, rule: Rule,
                     finite: torch.Tensor | None = None) -> None:
        assert staged.values is not None, "nothing is staged"
        flat = staged.rows if staged.places is None else staged.places
        self.apply(group, flat, staged.values, rule, finite)
