"""Batches as operands of commands, and the lookups of each table that the counters hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .batch import Batch
from .commands import Commands
from .contract import Status
from .errors import BatchError
from .futures import Completion
from .memory import Held
from .tables import Table

BatchLike: TypeAlias = Batch | ArrayLike


@dataclass
class StagedBatch:
    """A batch where the device finds it, its tables, and the operands that name it."""

    batch: Batch
    tables: list[Table]
    operands: dict[str, int]
    counted: bool = False


class BatchOperands:
    """Check batches, and put them where the device finds them.

    Parameters
    ----------
    commands : Commands

    Attributes
    ----------
    observed : float64[tables]
        Lookups of each table that the counters hold, decayed as they are.
    """

    def __init__(self, commands: Commands):
        self._commands = commands
        self.observed = np.zeros(commands.geometry.tables)

    def stage(self, batch: BatchLike, held: Held) -> StagedBatch:
        """Check a batch, and hold its tables and its memory until the command has completed.

        Raises
        ------
        BatchError, RegistrationError
        """
        commands, geometry = self._commands, self._commands.geometry
        if not isinstance(batch, Batch):
            batch = Batch.dense(batch)
        tables = commands.tables.resolve(batch)
        for what, count, limit in (("samples", batch.samples, geometry.batch_samples),
                                   ("lookups", batch.lookups, geometry.batch_lookups)):
            if count > limit:
                raise BatchError(f"the batch has {count} {what}: this card takes at most {limit}, "
                                 f"send it in parts")
        if commands.settings.check_ids:
            batch.check(tables)
        for table in tables:
            commands.hold_table(table, held)
        operands = {"source": commands.staging.stage(batch.ids, held), "flags": int(batch.flags),
                    "count": batch.lookups, "samples": batch.samples,
                    "first_table": tables[0].number, "table_count": batch.table_count}
        if batch.lengths is not None:
            operands["lengths"] = commands.staging.stage(batch.lengths, held)
        return StagedBatch(batch, tables, operands)

    def check(self, staged: StagedBatch, completion: Completion) -> None:
        """Raise the error that a completion reports about a batch.

        Raises
        ------
        BatchError, CommandError
        """
        if int(completion["status"]) == Status.ROW_OUT_OF_RANGE:
            raise staged.batch.refusal(int(completion["error_index"]), staged.tables)
        self._commands.check(completion)

    def count(self, staged: StagedBatch, completion: Completion) -> None:
        """The counters hold the lookups of a batch, unless its command was refused."""
        served = int(completion["status"]) in (Status.OK, Status.ROW_OUT_OF_RANGE)
        if served and not staged.counted:
            staged.counted = True
            numbers = [table.number for table in staged.tables]
            self.observed[numbers] += staged.batch.column_lookups
            self._commands.tables.in_counters.update(numbers)
