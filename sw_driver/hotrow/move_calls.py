"""Calls that the move queue serves: rows from tables to the trainer's slots."""

import numpy as np

from .contract import LARGEST_STRIDE, ROW_ALIGNMENT, GatherFlag, Opcode
from .errors import BatchError, RegistrationError
from .futures import Future
from .integers import vector
from .memory import Buffer, as_array, span
from .row_lists import check_rows, row_list, tables_of


class MoveCalls:
    """Part of `Device`; each call has a form X_async that returns a `Future`."""

    def gather(self, rows, out=None, slots=None, state_out=None) -> np.ndarray:
        """Copy the listed rows of registered tables.

        Parameters
        ----------
        rows : HotRows, RowList or (table, row)
            Of tables with one dim, element type and state size.
        out : Buffer, numpy.ndarray or torch tensor [n, dim], optional
            Receives row i at out[slots[i]], or at out[i]; memory of its own when absent. Rows
            that are not padded go there without a copy: its base must then be a multiple of 16.
        slots : integers [rows], optional
            Distinct places in `out` and `state_out`.
        state_out : Buffer, numpy.ndarray or torch tensor [n] or [n, m], optional
            Receives the rows' optimizer state in the same manner.

        Returns
        -------
        numpy.ndarray [n, dim]
            `out`, or an array of the rows in the order of the list.
        """
        return self.gather_async(rows, out, slots, state_out).result()

    def gather_async(self, rows, out=None, slots=None, state_out=None) -> Future:
        rows = row_list(rows)
        table = self._one_kind(rows, with_state=state_out is not None)
        out = None if out is None else _target(
            out, "out", table.dtype, table.dim * table.dtype.itemsize)
        state_out = None if state_out is None else _target(
            state_out, "state_out", table.state.dtype, table.state_bytes)
        slots = _slots(slots, len(rows), [each for each in (out, state_out) if each is not None])
        if not len(rows):
            return Future.of(np.empty((0, table.dim), table.dtype) if out is None else out)
        if self.check_ids:
            check_rows(rows, self._tables)

        with self._command() as held:
            for each in tables_of(rows, self._tables):
                for buffer in each.buffers:
                    held.enter_context(buffer)
            operands = {"source": self._staging.stage_rows(rows, held), "count": len(rows)}
            flags = GatherFlag(0)
            # Padding must not land on what lies beside the rows: such rows take a detour.
            direct = out is not None and not table.padded
            if direct and slots is not None:
                operands["targets"] = self._staging.stage(slots.astype(np.uint32), held)
                flags |= GatherFlag.LISTED
            staged = []  # (where the device writes, the array that the host fills from it)
            if direct:
                operands["destination"] = self._reach(out, "out", held)
                operands["stride"] = _stride(out, table)
            else:
                lease = held.enter_context(self._results.lease(len(rows) * table.row_bytes))
                operands |= {"destination": lease.address, "stride": table.row_bytes}
                padded = lease.rows(table.dtype, len(rows), table.row_bytes)
                staged.append((padded[:, :table.dim], out))
            if state_out is not None:
                flags |= GatherFlag.STATE
                if direct or slots is None:
                    operands["state_destination"] = self._reach(state_out, "state_out", held)
                else:
                    lease = held.enter_context(self._results.lease(len(rows) * table.state_bytes))
                    operands["state_destination"] = lease.address
                    moved = lease.rows(state_out.dtype, len(rows), table.state_bytes)
                    staged.append((moved.reshape(len(rows), *state_out.shape[1:]), state_out))

            def finish(c):
                self._raise_for(c, rows=rows)
                result = out
                for moved, target in staged:
                    if target is None:
                        result = moved.copy()
                    else:
                        target[slice(len(rows)) if slots is None else slots] = moved
                return result

            return self._submit(Opcode.GATHER, operands | {"flags": flags}, finish, held)

    def _one_kind(self, rows, with_state):
        """A table that stands for all tables of a list, which must be alike."""
        tables = tables_of(rows, self._tables) or list(self._tables.registered)
        if not tables:
            raise BatchError("no table is registered from which rows could be gathered")
        for table in tables[1:]:
            if (table.dim, table.dtype, table.state_bytes * with_state) != (
                    tables[0].dim, tables[0].dtype, tables[0].state_bytes * with_state):
                raise BatchError(
                    f"one gather takes rows of one kind, got {tables[0]!r} and {table!r}: gather "
                    f"them one after the other")
        if with_state and not tables[0].state_bytes:
            raise BatchError(f"{tables[0]!r} has no state that could go to state_out")
        return tables[0]

    def _reach(self, array, what, held):
        """Address of an array that the device writes to; registered for the command if need be."""
        host, size = span(array)
        buffer = self.regions.find(host, size, writable=True)
        if buffer is None:
            buffer = self.regions.add(array, True, what)
            held.callback(self.regions.remove, buffer)
        buffer.check()
        if (host - buffer.host) % ROW_ALIGNMENT:
            raise RegistrationError(f"{what} starts at {host:#x}, which is not a multiple of "
                                    f"{ROW_ALIGNMENT} bytes")
        held.enter_context(buffer)
        return buffer.packed(host - buffer.host)


def _target(out, what, dtype, row_bytes):
    """The array behind `out`, whose rows must be like those that are moved."""
    if isinstance(out, Buffer):
        out.check()
        if not out.writable:
            raise RegistrationError(f"{what} is {out!r}, registered with writable=False")
        out = out.array
    array = as_array(out)
    row = int(np.prod(array.shape[1:])) * array.itemsize if array.ndim else 0
    if array.dtype != dtype or row != row_bytes or not array.flags.writeable:
        raise RegistrationError(
            f"{what} must be writable, of {dtype}, {row_bytes} bytes a row; got {array.dtype} of "
            f"shape {array.shape}{'' if array.flags.writeable else ', read-only'}")
    return array


def _stride(out, table):
    """Bytes between the rows of `out`."""
    stride = out.strides[0] if len(out) > 1 else table.row_bytes
    if out.ndim != 2 or (out.shape[1] > 1 and out.strides[1] != out.itemsize):
        raise RegistrationError(f"out must be [n, dim] with contiguous rows, not of shape "
                                f"{out.shape} with strides {out.strides}")
    if stride % ROW_ALIGNMENT or not table.row_bytes <= stride <= LARGEST_STRIDE:
        raise RegistrationError(
            f"the rows of out lie {stride} bytes apart: expected a multiple of {ROW_ALIGNMENT} "
            f"from {table.row_bytes} to {LARGEST_STRIDE}")
    return stride


def _slots(slots, count, targets):
    """`slots` as an array or None, checked against the arrays that it indexes."""
    room = min((len(target) for target in targets), default=None)
    if slots is None:
        if room is not None and room < count:
            raise BatchError(f"{count} rows do not fit into out or state_out, which has {room}")
        return None
    if room is None:
        raise BatchError("slots are places in out, which was not given")
    slots = vector(slots, "slots")
    if len(slots) != count:
        raise BatchError(f"{len(slots)} slots for {count} rows: expected one for each")
    wrong = np.flatnonzero((slots < 0) | (slots >= room))
    if wrong.size:
        at = int(wrong[0])
        raise BatchError(f"slot {slots[at]} is out of range: there are 0 to {room - 1} "
                         f"(position {at} of the list)", position=at)
    if len(np.unique(slots)) != count:
        raise BatchError("two rows cannot go to one slot: slots must be distinct")
    return slots
