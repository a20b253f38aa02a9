"""Lists of rows as operands of commands."""

from __future__ import annotations

from threading import RLock

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..contract.errors import BatchError
from ..memory.buffer import Held
from ..operands.integers import Integers
from ..operands.results import RowList
from ..operands.row_bags import bag_lengths
from ..operands.row_lists import Rows, check_rows, is_known, row_list, tables_of
from ..operands.tables import TableSet
from ..queues.commands import Commands
from .staged_operands import StagedOperands, hold


class StagedRows(StagedOperands):
    """Bags of listed rows where the device finds them: `pool` takes them in the place of rows and
    lengths.

    Attributes
    ----------
    rows : RowList
    tables : TableSet
    lengths : uint16[bags]
    """

    what = "list of rows"

    def __init__(self, rows: RowList, tables: TableSet, lengths: NDArray[np.uint16],
                 operands: dict[str, int], held: Held, lock: RLock):
        super().__init__(operands, held, lock)
        self.rows, self.tables, self.lengths = rows, tables, lengths


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
        return self.alike(
            tables_of(rows, registered) or registered.set_of(registered.registered), with_state)

    def alike(self, tables: TableSet, with_state: bool) -> TableSet:
        """Tables of which one command moves rows, or BatchError; as in `tables`."""
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

    def hold(self, rows: Rows, lengths: ArrayLike | None,
             offsets: ArrayLike | None = None) -> StagedRows:
        """Check bags of rows and put them where the device finds them, until their `release`."""
        listed = row_list(rows, self._commands.tables)
        tables = self.tables(listed, with_state=False)
        bags = bag_lengths(lengths, offsets, len(listed))
        return hold(self._commands, lambda held: StagedRows(
            listed, tables, bags, self.stage_bags(listed, tables, bags, held), held,
            self._commands.lock))

    def stage_bags(self, rows: RowList, tables: TableSet, lengths: NDArray[np.uint16],
                   held: Held) -> dict[str, int]:
        """Operands that name bags of rows; `tables` are held."""
        return self.stage(rows, tables, held) | {
            "bags": len(lengths), "lengths": self._commands.staging.stage(lengths, held)}
