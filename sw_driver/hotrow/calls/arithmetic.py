"""Arithmetic on rows, on a card that has it: POOL and UPDATE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..contract.errors import BatchError, DeviceError, RegistrationError
from ..contract.generated import LARGEST_STRIDE, ROW_ALIGNMENT, Opcode, PoolFlag, UpdateFlag
from ..memory.buffer import Array, Buffer, Held
from ..operands.batch import Batch
from ..operands.integers import Integers
from ..operands.results import Done, RowList
from ..operands.row_bags import bag_lengths, distinct_rows, gradient_counts, row_weights
from ..operands.row_lists import Rows, check_distinct, is_known, row_list
from ..operands.slot_arrays import array_of, slot_array, slot_list, stride_of
from ..operands.table import Table
from ..operands.tables import TableSet
from ..queues.commands import Commands
from ..queues.futures import Completion, Future
from .batch_operands import BatchOperands, StagedBatch
from .row_operands import RowOperands, StagedRows

F = TypeVar("F")
MODES = {"sum": PoolFlag(0), "mean": PoolFlag.MEAN}
OPTIMIZERS = {"sgd": UpdateFlag(0), "rowwise_adagrad": UpdateFlag.ADAGRAD}
ADAGRAD_STATE_BYTES = 4


@dataclass(frozen=True)
class _Bags:
    """The bags of a POOL: `stage` returns the operands that name them, and what checks a
    completion."""

    tables: TableSet
    lookups: int
    count: int
    stage: Callable[[Held], tuple[dict[str, int], Callable[[Completion], None]]]


class Arithmetic:
    """Part of `Device`; each method returns the future of a command."""

    def __init__(self, commands: Commands, rows: RowOperands, batches: BatchOperands):
        self._commands, self._rows, self._batches = commands, rows, batches

    def pool(self, rows: Rows | StagedRows | Batch | StagedBatch,
             lengths: ArrayLike | None = None, *, offsets: ArrayLike | None = None,
             weights: ArrayLike | None = None, mode: str = "sum",
             out: Buffer | Array | None = None,
             slots: ArrayLike | None = None) -> Future[NDArray[Any]]:
        """Sum or average bags of listed rows of registered tables in fp32.

        The result is that of PyTorch's `embedding_bag`. The order of addition depends only on a
        bag's length; each sum is rounded once, to the tables' element type.

        Parameters
        ----------
        rows : HotRows, RowList, (table, row), StagedRows, Batch or StagedBatch
            The rows of all bags, one bag after another; of tables with one dim and element type.
            What `stage_rows` or `stage` returned has the bags, too, and so has a jagged,
            feature-major batch of 32-bit ids, which the card reads if `geometry.pools_batches`.
        lengths : integers [bags], optional
            Rows of each bag, 0 to 65535. An empty bag gives zeros.
        offsets : integers [bags], optional
            Instead of `lengths`: the place in the list where each bag begins.
        weights : floats [rows], optional
            The factor of each row, rounded to float32.
        mode : str
            "sum", or "mean": the sum, weighted or not, divided by the bag's number of rows.
        out : Buffer, numpy.ndarray or torch tensor [n, dim], optional
            Receives bag i at out[slots[i]], or at out[i]; memory of its own when absent. It lies
            apart from the rows.
        slots : integers [bags], optional
            Distinct places in `out`.

        Returns
        -------
        numpy.ndarray [bags, dim]
            `out`, or an array of the bags in order.
        """
        self._check(Opcode.POOL)
        flags, commands = _choice(mode, MODES, "mode"), self._commands
        bags = self._bags(rows, lengths, offsets)
        table = bags.tables[0]
        factors, arrays = row_weights(weights, bags.lookups), {}
        if out is not None:
            arrays["out"] = slot_array(
                out, "out", table.dtype, table.dim * table.dtype.itemsize, writable=True)
        target = arrays.get("out")
        places = slot_list(slots, bags.count, arrays, distinct=True)
        chosen = slice(bags.count) if places is None else places
        result = np.empty((bags.count, table.dim), table.dtype) if target is None else target
        if not bags.lookups:
            result[chosen] = 0
            return Future.of(result)

        with commands.open(Opcode.POOL) as held:
            operands, check = bags.stage(held)
            flags |= PoolFlag(operands.pop("flags", 0))
            if factors is not None:
                operands["weights"] = commands.staging.stage(factors, held)
                flags |= PoolFlag.WEIGHTED
            lease = None  # where the device writes, unless it writes to `target`
            if target is not None and not table.padded:
                operands["destination"] = commands.regions.reach(
                    target, "out", True, ROW_ALIGNMENT, held)
                operands["stride"] = stride_of(target, "out", table)
                if places is not None:
                    operands["targets"] = commands.staging.stage(places.astype(np.uint32), held)
                    flags |= PoolFlag.LISTED
            else:
                commands.regions.check_copied("out", target)
                lease = commands.results.lease(bags.count * table.row_bytes, held)
                operands |= {"destination": lease.address, "stride": table.row_bytes}

            def finish(c: Completion) -> NDArray[Any]:
                check(c)
                if lease is not None:
                    pooled = lease.written(
                        table.dtype, bags.count * table.row_bytes // table.dtype.itemsize)
                    result[chosen] = pooled.reshape(bags.count, -1)[:, :table.dim].reshape(
                        -1, *result.shape[1:])
                return result

            return commands.submit(Opcode.POOL, operands | {"flags": flags}, finish, held)

    def _bags(self, rows: Rows | StagedRows | Batch | StagedBatch, lengths: ArrayLike | None,
              offsets: ArrayLike | None) -> _Bags:
        """Check the bags of a POOL."""
        commands = self._commands
        if isinstance(rows, StagedRows | Batch | StagedBatch) and not (
                lengths is None and offsets is None):
            raise BatchError("staged rows and batches have their bags: give neither lengths nor "
                             "offsets")
        if isinstance(rows, Batch | StagedBatch):
            batch = rows if isinstance(rows, Batch) else rows.batch
            if not commands.geometry.pools_batches:
                raise DeviceError("this card pools no batch: give the rows of the bags, or use a "
                                  "card built with arithmetic=2")
            if batch.lengths is None or not batch.feature_major or batch.ids.itemsize != 4:
                raise BatchError("pool takes a batch of 32-bit ids, such as Batch.jagged(ids, "
                                 "lengths, samples, feature_major=True)")
            tables = rows.tables if isinstance(rows, StagedBatch) else (
                commands.tables.resolve(batch))

            def stage_batch(held: Held) -> tuple[dict[str, int], Callable[[Completion], None]]:
                staged = self._batches.stage(rows, held)
                operands = dict(staged.operands, flags=PoolFlag.BATCH)
                operands["bags"] = operands.pop("samples")
                return operands, partial(self._batches.check, staged.batch, staged.tables)

            return _Bags(self._rows.alike(tables, with_state=False), batch.lookups,
                         len(batch.lengths), stage_batch)
        if isinstance(rows, StagedRows):
            staged, listed = rows, rows.rows

            def use(held: Held) -> tuple[dict[str, int], Callable[[Completion], None]]:
                staged.use(held, commands.lock)
                return dict(staged.operands), partial(commands.check, rows=listed)

            return _Bags(rows.tables, len(listed), len(rows.lengths), use)
        listed = row_list(rows, commands.tables)
        tables, counts = self._rows.tables(listed, with_state=False), bag_lengths(
            lengths, offsets, len(listed))
        return _Bags(tables, len(listed), len(counts), lambda held: (
            self._rows.stage_bags(listed, tables, counts, held),
            partial(commands.check, rows=listed)))

    def update(self, rows: Rows, gradients: Buffer | Array, lr: float, *, optimizer: str = "sgd",
               eps: float = 1e-8, slots: ArrayLike | None = None,
               lengths: ArrayLike | None = None) -> Future[Done]:
        """Take one step of an optimizer on listed rows of registered tables.

        The gradients of a row are summed in fp32 as `pool` sums the rows of a bag. "sgd":
        w = fma(-lr, g, w). "rowwise_adagrad": s += mean(g * g), w = fma(-lr / (sqrt(s) + eps), g,
        w), where s is the row's state. Weights are rounded once, to the tables' element type.

        Parameters
        ----------
        rows : HotRows, RowList or (table, row)
            The row of each gradient; a row may occur up to 65535 times. Of tables with one dim and
            element type, registered from writable arrays.
        gradients : Buffer, numpy.ndarray or torch tensor [n, dim]
            Of float32, where the card carries rows of so many bytes, or the tables' element type.
            Row i of the list gets gradients[slots[i]], or gradients[i]. The device reads them
            directly from registered memory.
        lr : float
            Learning rate, rounded to float32 like `eps`.
        optimizer : str
            "sgd", or "rowwise_adagrad" on tables registered with a float32 state per row, whose
            rows are not padded.
        eps : float
        slots : integers [rows], optional
            Places in `gradients`, such as the bag of each row.
        lengths : integers [rows], optional
            Gradients of each row, 1 to 65535: the rows are then distinct, and `slots` lists the
            places of a row's gradients after those of the row before it. It saves the driver a
            sort.
        """
        self._check(Opcode.UPDATE)
        flags = _choice(optimizer, OPTIMIZERS, "optimizer")
        listed = row_list(rows, self._commands.tables)
        rates = {"lr": _float_bits(lr, "lr"), "eps": _float_bits(eps, "eps")}
        tables = self._rows.tables(listed, with_state=bool(flags))
        table, commands = tables[0], self._commands
        _check_updatable(tables if len(listed) else [], with_state=bool(flags))
        given = _gradients(gradients, table, commands.geometry.row_bytes)
        if given.dtype != np.float32:
            flags |= UpdateFlag.TYPED
        counts = None if lengths is None else gradient_counts(lengths, len(listed))
        uses = len(listed) if counts is None else int(counts.sum())
        places = slot_list(slots, uses, {"gradients": given}, distinct=False)
        if not len(listed):
            return Future.of(Done(0))
        first: NDArray[np.int64] | None = None  # place of each row in the caller's list
        if counts is None:
            order, first, counts = distinct_rows(listed)
            distinct = RowList(listed.table[first], listed.row[first])
            numbers: Integers = order if places is None else places[order]
        else:
            distinct, numbers = listed, np.arange(uses) if places is None else places
            if commands.settings.check_ids and not is_known(listed, tables):
                check_distinct(listed, commands.tables)

        with commands.open(Opcode.UPDATE) as held:
            operands = self._rows.stage(distinct, tables, held, first) | rates | {
                "lengths": commands.staging.stage(counts, held), "gradient_count": uses}
            in_place = self._find_gradients(given, table, held)
            if in_place is not None:
                operands |= in_place
                if places is not None or first is not None:
                    operands["targets"] = commands.staging.stage(
                        numbers.astype(np.uint32, copy=False), held)
                    flags |= UpdateFlag.LISTED
            else:
                operands |= self._stage_gradients(given[numbers], table, held)
            return commands.submit(
                Opcode.UPDATE, operands | {"flags": flags},
                partial(commands.done, rows=distinct, positions=first), held)

    def _find_gradients(self, gradients: NDArray[Any], table: Table,
                        held: Held) -> dict[str, int] | None:
        """Operands that name gradients in place, or None where the device cannot read them."""
        row, stride = gradients.shape[1] * gradients.itemsize, gradients.strides[0]
        possible = (not table.padded and not stride % ROW_ALIGNMENT
                    and row <= stride <= LARGEST_STRIDE
                    and gradients.strides[1] == gradients.itemsize)
        regions = self._commands.regions
        address = regions.find_in_place(gradients, ROW_ALIGNMENT, held) if possible else None
        if address is None:
            regions.check_copied("gradients", gradients)
            return None
        return {"gradients": address, "stride": stride}

    def _stage_gradients(self, gradients: NDArray[Any], table: Table, held: Held) -> dict[str, int]:
        """Operands that name a copy of gradients, padded like the rows."""
        count, dim = gradients.shape
        stride = table.row_bytes // table.dtype.itemsize * gradients.itemsize
        lease = self._commands.staging.lease(count * stride, held)
        padded = lease.rows(gradients.dtype, count, stride)
        padded[:, :dim] = gradients
        padded[:, dim:] = 0
        return {"gradients": lease.address, "stride": stride}

    def _check(self, opcode: Opcode) -> None:
        if not self._commands.geometry.arithmetic:
            raise DeviceError(
                f"this card has no arithmetic, which {opcode.name} needs: gather the rows and "
                f"compute on the host, or use a card built with arithmetic=1 or 2")


def _choice(name: str, known: Mapping[str, F], what: str) -> F:
    if not isinstance(name, str) or name not in known:
        raise BatchError(f"{what} must be {' or '.join(map(repr, known))}, not {name!r}")
    return known[name]


def _float_bits(value: float, what: str) -> int:
    """The bits of a number as float32."""
    try:
        with np.errstate(over="ignore"):
            number = np.float32(np.nan if isinstance(value, str) else float(value))
    except (TypeError, ValueError, OverflowError):
        number = np.float32(np.nan)
    if not np.isfinite(number):
        raise BatchError(f"{what} must be a finite number in float32, not {value!r}")
    return int(number.view(np.uint32))


def _check_updatable(tables: Sequence[Table], with_state: bool) -> None:
    """Raise RegistrationError where a step cannot be taken."""
    for table in tables:
        for buffer in table.buffers[:1 + with_state]:
            if not buffer.writable:
                raise RegistrationError(f"{buffer.name} cannot be written: it was registered from "
                                        f"a read-only array")
        if not with_state or not table.state_bytes:
            continue
        if (table.state_bytes, table.state_dtype) != (ADAGRAD_STATE_BYTES, np.dtype(np.float32)):
            raise RegistrationError(
                f"row-wise Adagrad keeps one float32 per row: {table!r} has state of "
                f"{table.state_dtype}, {table.state_bytes} bytes a row")
        if table.padded:
            raise RegistrationError(
                f"row-wise Adagrad takes the mean over every carried byte of a row, but the rows "
                f"of {table!r} are padded to {table.row_bytes} bytes: choose a dim whose rows are "
                f"a multiple of {ROW_ALIGNMENT} bytes")


def _gradients(value: Buffer | Array, table: Table, largest_row: int) -> NDArray[Any]:
    """The array of gradients, checked against their table."""
    array = array_of(value, "gradients", writable=False)
    if array.ndim != 2 or array.shape[1] != table.dim or array.dtype not in (
            np.float32, table.dtype):
        kinds = " or ".join(dict.fromkeys(("float32", table.dtype.name)))
        raise RegistrationError(
            f"gradients must be [n, {table.dim}] of {kinds}; got {array.dtype} of shape "
            f"{array.shape}")
    carried = table.row_bytes // table.dtype.itemsize * array.itemsize
    if carried > largest_row:
        raise RegistrationError(
            f"a gradient of {carried} bytes is longer than the {largest_row} that this card "
            f"carries: give it in {table.dtype.name}, the tables' element type")
    return array
