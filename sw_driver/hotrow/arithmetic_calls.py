"""Calls that compute on the card: bags of rows to one row each, and steps of an optimizer."""

from functools import partial

import numpy as np

from .contract import LARGEST_STRIDE, ROW_ALIGNMENT, Opcode, PoolFlag, UpdateFlag
from .errors import BatchError, DeviceError, RegistrationError
from .futures import Future
from .memory import span
from .results import Done, RowList
from .row_bags import bag_lengths, distinct_rows, row_weights
from .row_lists import row_list, tables_of
from .slot_arrays import array_of, slot_array, slot_list, stride_of

MODES = {"sum": PoolFlag(0), "mean": PoolFlag.MEAN}
OPTIMIZERS = {"sgd": UpdateFlag(0), "rowwise_adagrad": UpdateFlag.ADAGRAD}
ADAGRAD_STATE_BYTES = 4


class ArithmeticCalls:
    """Part of `Device`; each call has a form X_async that returns a `Future`."""

    def pool(self, rows, lengths=None, *, offsets=None, weights=None, mode="sum", out=None,
             slots=None) -> np.ndarray:
        """Sum or average bags of listed rows of registered tables, in fp32, as PyTorch's
        `embedding_bag` does.

        The order of addition depends on a bag's length alone; the result is rounded once, to the
        tables' element type.

        Parameters
        ----------
        rows : HotRows, RowList or (table, row)
            The rows of all bags, one bag after another; of tables with one dim and element type.
        lengths : integers [bags], optional
            Rows of each bag, 0 to 65535. An empty bag gives zeros.
        offsets : integers [bags], optional
            Instead of `lengths`: where each bag begins in the list.
        weights : floats [rows], optional
            By which each row is multiplied, as float32.
        mode : str
            "sum", or "mean": the sum, weighted or not, divided by the bag's number of rows.
        out : Buffer, numpy.ndarray or torch tensor [n, dim], optional
            Receives bag i at out[slots[i]], or at out[i]; memory of its own when absent.
        slots : integers [bags], optional
            Distinct places in `out`.

        Returns
        -------
        numpy.ndarray [bags, dim]
            `out`, or an array of the bags in order.
        """
        return self.pool_async(rows, lengths, offsets=offsets, weights=weights, mode=mode, out=out,
                               slots=slots).result()

    def pool_async(self, rows, lengths=None, *, offsets=None, weights=None, mode="sum", out=None,
                   slots=None) -> Future:
        self._check_arithmetic(Opcode.POOL)
        flags = _choice(mode, MODES, "mode")
        rows = row_list(rows)
        table = self._one_kind(rows, with_state=False)
        lengths = bag_lengths(lengths, offsets, len(rows))
        weights, bags = row_weights(weights, len(rows)), len(lengths)
        arrays = {}
        if out is not None:
            out = arrays["out"] = slot_array(
                out, "out", table.dtype, table.dim * table.dtype.itemsize, writable=True)
        slots = slot_list(slots, bags, arrays, distinct=True)
        places = slice(bags) if slots is None else slots
        if not len(rows):
            out = np.empty((bags, table.dim), table.dtype) if out is None else out
            out[places] = 0
            return Future.of(out)

        with self._command() as held:
            operands = self._stage_list(rows, held) | {
                "bags": bags, "lengths": self._staging.stage(lengths, held)}
            if weights is not None:
                operands["weights"] = self._staging.stage(weights, held)
                flags |= PoolFlag.WEIGHTED
            pooled = None  # where the device writes, unless it does so in place
            if out is not None and not table.padded:
                operands["destination"] = self.regions.reach(out, "out", True, ROW_ALIGNMENT, held)
                operands["stride"] = stride_of(out, "out", table)
                if slots is not None:
                    operands["targets"] = self._staging.stage(slots.astype(np.uint32), held)
                    flags |= PoolFlag.LISTED
            else:
                lease = held.enter_context(self._results.lease(bags * table.row_bytes))
                operands |= {"destination": lease.address, "stride": table.row_bytes}
                pooled = lease.rows(table.dtype, bags, table.row_bytes)[:, :table.dim]

            def finish(c):
                self._raise_for(c, rows=rows)
                if pooled is None:
                    return out
                if out is None:
                    return pooled.copy()
                out[places] = pooled
                return out

            return self._submit(Opcode.POOL, operands | {"flags": flags}, finish, held)

    def update(self, rows, gradients, lr, *, optimizer="sgd", eps=1e-8, slots=None) -> Done:
        """Take one step of an optimizer on listed rows of registered tables.

        The gradients of a row are summed in fp32 in the order of the list. "sgd": w = fma(-lr, g,
        w). "rowwise_adagrad": s += mean(g * g), w = fma(-lr / (sqrt(s) + eps), g, w), where s is
        the row's state. Weights are rounded once, to the tables' element type.

        Parameters
        ----------
        rows : HotRows, RowList or (table, row)
            The row that each gradient belongs to; one row any number of times, 65535 at most. Of
            tables with one dim and element type, registered from writable arrays.
        gradients : Buffer, numpy.ndarray or torch tensor [n, dim]
            Of float32 or the tables' element type. That of row i of the list is
            gradients[slots[i]], or gradients[i]. In registered memory they are read where they are.
        lr : float
            Learning rate, rounded to float32, as `eps` is.
        optimizer : str
            "sgd" or "rowwise_adagrad", which needs tables registered with a float32 state per row.
        eps : float
        slots : integers [rows], optional
            Places in `gradients`, such as the bag of each row.
        """
        return self.update_async(rows, gradients, lr, optimizer=optimizer, eps=eps,
                                 slots=slots).result()

    def update_async(self, rows, gradients, lr, *, optimizer="sgd", eps=1e-8, slots=None) -> Future:
        self._check_arithmetic(Opcode.UPDATE)
        flags = _choice(optimizer, OPTIMIZERS, "optimizer")
        rates = {"lr": _float_bits(lr, "lr"), "eps": _float_bits(eps, "eps")}
        rows = row_list(rows)
        table = self._one_kind(rows, with_state=bool(flags))
        used = tables_of(rows, self._tables)
        _check_updatable(used, with_state=bool(flags))
        gradients = _gradients(gradients, table, self.geometry.row_bytes)
        if gradients.dtype != np.float32:
            flags |= UpdateFlag.TYPED
        slots = slot_list(slots, len(rows), {"gradients": gradients}, distinct=False)
        if not len(rows):
            return Future.of(Done(0))
        order, first, counts = distinct_rows(rows)
        distinct = RowList(rows.table[first], rows.row[first])

        with self._command() as held:
            # Each row with its first appearance, so that errors name a place in the caller's list.
            operands = self._stage_list(distinct, held, first) | rates | {
                "lengths": self._staging.stage(counts, held), "gradient_count": len(rows)}
            numbers = order if slots is None else slots[order]
            found = self._find_gradients(gradients, table, held)
            if found is not None:
                operands |= found
                operands["targets"] = self._staging.stage(numbers.astype(np.uint32), held)
                flags |= UpdateFlag.LISTED
            else:
                operands |= self._stage_gradients(gradients[numbers], table, held)
            return self._submit(
                Opcode.UPDATE, operands | {"flags": flags},
                partial(self._done, rows=distinct, positions=first), held)

    def _find_gradients(self, gradients, table, held):
        """Operands that name gradients in place, or None where the device cannot read them
        there."""
        row, stride = gradients.shape[1] * gradients.itemsize, gradients.strides[0]
        if table.padded or stride % ROW_ALIGNMENT or not row <= stride <= LARGEST_STRIDE or (
                gradients.strides[1] != gradients.itemsize):
            return None
        host, size = span(gradients)
        buffer = self.regions.find(host, size)
        if buffer is None or (host - buffer.host) % ROW_ALIGNMENT:
            return None
        buffer.check()
        held.enter_context(buffer)
        return {"gradients": buffer.packed(host - buffer.host), "stride": stride}

    def _stage_gradients(self, gradients, table, held):
        """Operands that name a copy of gradients, padded as the rows are."""
        count, dim = gradients.shape
        stride = table.row_bytes // table.dtype.itemsize * gradients.itemsize
        lease = held.enter_context(self._staging.lease(count * stride))
        padded = lease.rows(gradients.dtype, count, stride)
        padded[:, :dim] = gradients
        padded[:, dim:] = 0
        return {"gradients": lease.address, "stride": stride}

    def _check_arithmetic(self, opcode):
        if not self.geometry.arithmetic:
            raise DeviceError(
                f"this card has no arithmetic, so {opcode.name} is not to be had: gather the rows "
                f"and compute on the host, or use a card built with arithmetic=True")


def _choice(name, known, what):
    if name not in known:
        raise BatchError(f"{what} must be {' or '.join(map(repr, known))}, not {name!r}")
    return known[name]


def _float_bits(value, what):
    """The bits of a number as float32."""
    with np.errstate(over="ignore"):
        number = np.float32(value)
    if not np.isfinite(number):
        raise BatchError(f"{what} must be a finite number in float32, not {value!r}")
    return int(number.view(np.uint32))


def _check_updatable(tables, with_state):
    """Raise RegistrationError where a step cannot be taken."""
    for table in tables:
        for buffer in table.buffers[:1 + with_state]:
            if not buffer.writable:
                raise RegistrationError(f"{buffer.name} cannot be written: it was registered from "
                                        f"a read-only array")
        if with_state and (table.state_bytes, table.state.dtype) != (
                ADAGRAD_STATE_BYTES, np.float32):
            raise RegistrationError(
                f"row-wise Adagrad keeps one float32 per row: {table!r} has state of "
                f"{table.state.dtype}, {table.state_bytes} bytes a row")
        if with_state and table.padded:
            raise RegistrationError(
                f"row-wise Adagrad takes the mean over all that is carried of a row, but the rows "
                f"of {table!r} are padded to {table.row_bytes} bytes: give it a dim whose rows are "
                f"a multiple of {ROW_ALIGNMENT} bytes")


def _gradients(value, table, largest_row):
    """The array behind gradients, checked against the table they are for."""
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
