"""Mode `resident`: the tables themselves, in the trainer's memory, without a device."""

from ...kernels.grouping import Grouper
from ...kernels.updating import update_rows
from ..memory.read_ahead import ReadAhead
from ..optim.rounding import row_keys
from .base import LocatedRows, PendingBackward, Store


class ResidentStore(Store):
    """Looks rows up in the tables and updates them there."""

    def __init__(self, groups):
        super().__init__(groups)
        self._reads = ReadAhead(group.tables for group in self.groups)
        self._groupers = [Grouper(len(group.tables.rows)) for group in self.groups]

    def prefetch(self, request):
        for segment in request.segments:
            self._reads.begin(segment.group, segment.flat)

    def take(self, request):
        return self.look(request), PendingBackward()

    def look(self, request):
        for segment in request.segments:
            self._reads.now(segment.group, segment.flat)
        return [LocatedRows(self.groups[each.group].tables.rows, each.flat,
                            grouper=self._groupers[each.group]) for each in request.segments]

    def read(self, group, flat):
        tables = self.groups[group].tables
        return tables.rows.take(tables.kind, flat)

    def apply(self, group, flat, sums, rule, finite=None):
        self.groups[group].tables.check_owner()
        rows = self.groups[group].tables.rows
        keys = None if rule.rounding_seed is None else row_keys(
            group, self.groups[group].whole_rows(flat))
        with self.stepping(group):
            update_rows(rows.weights, flat, sums, rule, rows.state, keys)

    def apply_staged(self, group, staged, rule, finite=None):
        flat = staged.rows if staged.places is None else staged.places
        self.apply(group, flat, staged.values, rule, finite)
