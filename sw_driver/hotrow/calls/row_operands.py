"""Lists of rows as operands of commands."""

from __future__ import annotations

from ..contract.errors import BatchError
from ..memory.buffer import Held
from ..operands.integers import Integers
from ..operands.results import RowList
from ..operands.row_lists import check_rows, is_known, tables_of
from ..operands.tables import TableSet
from ..queues.commands import Commands


class RowOperands:
    """Check lists of rows, and put them where the device finds them.

    Parameters
    ----------
    commands : Commands
    """

    def __init__(self, commands: Commands):
        self._commands = commands

    def tables(self, rows: RowList, with_state: bool) -> TableSet:
        """The tables of a list, or all registered tables if it is empty.

        They have one dim and element type and, `with_state`, one size of state.

        Raises
        ------
        BatchError
        """
        registered = self._commands.tables
        tables = tables_of(rows, registered) or registered.set_of(registered.registered)
        if not tables:
            raise BatchError("no table is registered whose rows could be moved")
        far = next((table for table in tables if table.elsewhere), None)
        if far is not None:
            raise BatchError(f"the rows of {far!r} lie where the device does not reach them: it "
                             f"plans them, and the host moves them")
        first = tables[0]
        other = tables.stranger or (tables.state_stranger if with_state else None)
        if other is not None:
            raise BatchError(f"one command moves rows of one kind, got {first!r} and {other!r}: "
                             f"move them with two commands")
        if with_state and not first.state_bytes:
            raise BatchError(f"{first!r} has no state that could be moved")
        return tables

    def stage(self, rows: RowList, tables: TableSet, held: Held,
              positions: Integers | None = None) -> dict[str, int]:
        """Operands that name the rows; `tables` are held. `positions` as in `check_rows`."""
        if self._commands.settings.check_ids and not is_known(rows, tables):
            check_rows(rows, self._commands.tables, positions)
        tables.hold(held)
        return {"source": self._commands.staging.stage_rows(rows, held), "count": len(rows)}
