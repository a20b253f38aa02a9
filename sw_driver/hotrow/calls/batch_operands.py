"""Batches as operands of commands."""

from __future__ import annotations

from threading import RLock
from typing import TypeAlias

from numpy.typing import ArrayLike

from ..contract.errors import BatchError
from ..contract.generated import Status
from ..memory.buffer import Held
from ..operands.batch import Batch
from ..operands.tables import TableSet
from ..queues.commands import Commands
from ..queues.futures import Completion
from .staged_operands import StagedOperands, hold


class StagedBatch(StagedOperands):
    """A batch where the device finds it: commands take it in the place of the batch.

    Attributes
    ----------
    batch : Batch
    tables : TableSet
    operands : dict of str to int
        Operands that name the batch.
    """

    what = "batch"

    def __init__(self, batch: Batch, tables: TableSet, operands: dict[str, int], held: Held,
                 lock: RLock):
        super().__init__(operands, held, lock)
        self.batch, self.tables = batch, tables


BatchLike: TypeAlias = Batch | StagedBatch | ArrayLike


class BatchOperands:
    """Check batches, and put them where the device finds them.

    Parameters
    ----------
    commands : Commands
    """

    def __init__(self, commands: Commands):
        self._commands = commands

    def stage(self, batch: BatchLike, held: Held) -> StagedBatch:
        """Check a batch, and hold its tables and its memory until `held` is released.

        Raises
        ------
        BatchError, RegistrationError
        """
        commands = self._commands
        if isinstance(batch, StagedBatch):
            batch.use(held, commands.lock)  # these commands read ids, and no row
            return batch
        if not isinstance(batch, Batch):
            batch = Batch.dense(batch)
        tables = self.check_batch(batch)
        tables.hold(held)
        operands = {"source": commands.staging.stage(batch.ids, held),
                    **batch_operands(batch, tables)}
        if batch.lengths is not None:
            operands["lengths"] = commands.staging.stage(batch.lengths, held)
        return StagedBatch(batch, tables, operands, held, commands.lock)

    def check_batch(self, batch: Batch) -> TableSet:
        """The tables of a batch, which is checked; errors as in `stage`."""
        commands, geometry = self._commands, self._commands.geometry
        tables = commands.tables.resolve(batch)
        if batch.fits is not geometry:
            for what, count, limit in (("samples", batch.samples, geometry.batch_samples),
                                       ("lookups", batch.lookups, geometry.batch_lookups)):
                if count > limit:
                    raise BatchError(f"the batch has {count} {what}: this card takes at most "
                                     f"{limit}, send it in parts")
            batch.fits = geometry
        if commands.settings.check_ids and batch.checked != tables.rows:
            batch.check(tables)
        return tables

    def hold(self, batch: BatchLike) -> StagedBatch:
        """Check a batch and put it where the device finds it, until its `release`."""
        if isinstance(batch, StagedBatch):
            raise BatchError("the batch is staged: commands take it as it is")
        return hold(self._commands, lambda held: self.stage(batch, held))

    def check(self, batch: Batch, tables: TableSet, completion: Completion) -> None:
        """Raise the error that a completion reports about a batch of some tables.

        Raises
        ------
        BatchError, CommandError
        """
        if completion["status"] == Status.ROW_OUT_OF_RANGE:
            raise batch.refusal(completion["error_index"], tables)
        self._commands.check(completion)

    def count(self, tables: TableSet, completion: Completion) -> None:
        """The counters hold rows of the batch's tables, unless its command was refused."""
        if completion["status"] in (Status.OK, Status.ROW_OUT_OF_RANGE):
            self._commands.tables.in_counters.update(tables.numbers)


def batch_operands(batch: Batch, tables: TableSet) -> dict[str, int]:
    """Operands of a batch of some tables beside its lists: dict of str to int."""
    return {"flags": batch.flags, "count": batch.lookups, "samples": batch.samples,
            "first_table": tables.numbers[0], "table_count": batch.table_count}
