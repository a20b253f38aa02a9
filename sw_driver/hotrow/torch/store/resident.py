"""Mode `resident`: the tables themselves, in the trainer's memory, without a device."""

from ..optim.arithmetic import updated
from .base import LocatedRows, PendingBackward, Store


class ResidentStore(Store):
    """Looks rows up in the tables and updates them there."""

    def take(self, request):
        return self.look(request), PendingBackward()

    def look(self, request):
        return [LocatedRows(self.groups[each.group].tables.rows, each.flat)
                for each in request.segments]

    def read(self, group, flat):
        tables = self.groups[group].tables
        return tables.rows.take(tables.kind, flat)

    def apply(self, group, flat, sums, rule, finite=None):
        rows = self.groups[group].tables.rows
        weights, state = rows.read(flat)
        rows.write(flat, *updated(rule, weights, state, sums, finite))
