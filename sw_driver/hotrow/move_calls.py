"""Calls that the move queue serves: rows between tables and the trainer's slots."""

from functools import partial

import numpy as np

from .contract import ROW_ALIGNMENT, STATE_ALIGNMENT, GatherFlag, Opcode
from .errors import BatchError, RegistrationError
from .futures import Future
from .memory import span
from .results import Done
from .row_lists import check_distinct, check_rows, row_list, tables_of
from .slot_arrays import slot_array, slot_list, stride_of


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
        arrays = _slot_arrays(table, {"out": out, "state_out": state_out}, writable=True)
        out, state_out = arrays.get("out"), arrays.get("state_out")
        slots = slot_list(slots, len(rows), arrays, distinct=True)
        if not len(rows):
            return Future.of(np.empty((0, table.dim), table.dtype) if out is None else out)

        with self._command() as held:
            operands, flags = self._stage_list(rows, held), GatherFlag(0)
            # Padding must not land on what lies beside the rows: such rows take a detour.
            direct = out is not None and not table.padded
            if direct and slots is not None:
                operands["targets"] = self._staging.stage(slots.astype(np.uint32), held)
                flags |= GatherFlag.LISTED
            staged = []  # (where the device writes, the array that the host fills from it)
            if direct:
                operands["destination"] = self.regions.reach(
                    out, "out", True, ROW_ALIGNMENT, held)
                operands["stride"] = stride_of(out, "out", table)
            else:
                lease = held.enter_context(self._results.lease(len(rows) * table.row_bytes))
                operands |= {"destination": lease.address, "stride": table.row_bytes}
                padded = lease.rows(table.dtype, len(rows), table.row_bytes)
                staged.append((padded[:, :table.dim], out))
            if state_out is not None:
                flags |= GatherFlag.STATE
                if direct or slots is None:
                    operands["state_destination"] = self.regions.reach(
                        state_out, "state_out", True, STATE_ALIGNMENT, held)
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

    def scatter(self, rows, values, slots=None, state=None) -> Done:
        """Write rows of registered tables: the reverse of `gather`.

        Parameters
        ----------
        rows : HotRows, RowList or (table, row)
            Of tables with one dim, element type and state size, registered from writable arrays.
            Distinct, as a card with several row ports writes them in any order.
        values : Buffer, numpy.ndarray or torch tensor [n, dim]
            Row i of the list becomes values[slots[i]], or values[i]. In registered memory, rows
            that are not padded are read where they are.
        slots : integers [rows], optional
            Places in `values` and `state`.
        state : Buffer, numpy.ndarray or torch tensor [n] or [n, m], optional
            What the rows' optimizer state becomes, in the same manner.
        """
        return self.scatter_async(rows, values, slots, state).result()

    def scatter_async(self, rows, values, slots=None, state=None) -> Future:
        rows = row_list(rows)
        table = self._one_kind(rows, with_state=state is not None)
        arrays = _slot_arrays(table, {"values": values, "state": state}, writable=False)
        slots = slot_list(slots, len(rows), arrays, distinct=False)
        for each in tables_of(rows, self._tables):
            for buffer in each.buffers[:len(arrays)]:
                if not buffer.writable:
                    raise RegistrationError(f"{buffer.name} cannot be written: it was registered "
                                            f"from a read-only array")
        if not len(rows):
            return Future.of(Done(0))

        with self._command() as held:
            operands = self._stage_list(rows, held)
            if self.check_ids:
                check_distinct(rows, self._tables)
            flags = GatherFlag.STATE if state is not None else GatherFlag(0)
            found = self._find_slots(table, arrays, held)
            if found is None:
                found = self._stage_slots(table, arrays, slots, len(rows), held)
            elif slots is not None:
                operands["targets"] = self._staging.stage(slots.astype(np.uint32), held)
                flags |= GatherFlag.LISTED
            return self._submit(Opcode.SCATTER, operands | found | {"flags": flags},
                                partial(self._done, rows=rows), held)

    def _stage_list(self, rows, held, positions=None):
        """Operands that name the rows; their tables are held. `positions` as of `check_rows`."""
        if self.check_ids:
            check_rows(rows, self._tables, positions)
        for table in tables_of(rows, self._tables):
            for buffer in table.buffers:
                held.enter_context(buffer)
        return {"source": self._staging.stage_rows(rows, held), "count": len(rows)}

    def _find_slots(self, table, arrays, held):
        """Operands that name slots in place, or None where the device cannot read them there."""
        values, state = arrays["values"], arrays.get("state")
        wanted = {"rows": (values, ROW_ALIGNMENT)}
        if state is not None:
            wanted["state_rows"] = (state, STATE_ALIGNMENT)
        if table.padded or (state is not None and not state.flags.c_contiguous):
            return None
        try:
            operands = {"stride": stride_of(values, "values", table)}
        except RegistrationError:
            return None
        for name, (array, alignment) in wanted.items():
            host, size = span(array)
            buffer = self.regions.find(host, size)
            if buffer is None or (host - buffer.host) % alignment:
                return None
            buffer.check()
            held.enter_context(buffer)
            operands[name] = buffer.packed(host - buffer.host)
        return operands

    def _stage_slots(self, table, arrays, slots, count, held):
        """Operands that name copies of the slots, in the order of the list."""
        chosen = slice(count) if slots is None else slots
        lease = held.enter_context(self._staging.lease(count * table.row_bytes))
        padded = lease.rows(table.dtype, count, table.row_bytes)
        padded[:, :table.dim] = arrays["values"][chosen].reshape(count, table.dim)
        padded[:, table.dim:] = 0
        operands = {"rows": lease.address, "stride": table.row_bytes}
        if "state" in arrays:
            lease = held.enter_context(self._staging.lease(count * table.state_bytes))
            packed = lease.rows(table.state.dtype, count, table.state_bytes)
            packed[:] = arrays["state"][chosen].reshape(count, -1)
            operands["state_rows"] = lease.address
        return operands

    def _one_kind(self, rows, with_state):
        """A table that stands for all tables of a list, which must be alike."""
        tables = tables_of(rows, self._tables) or list(self._tables.registered)
        if not tables:
            raise BatchError("no table is registered whose rows could be moved")
        for table in tables[1:]:
            if (table.dim, table.dtype, table.state_bytes * with_state) != (
                    tables[0].dim, tables[0].dtype, tables[0].state_bytes * with_state):
                raise BatchError(
                    f"one command moves rows of one kind, got {tables[0]!r} and {table!r}: move "
                    f"them one after the other")
        if with_state and not tables[0].state_bytes:
            raise BatchError(f"{tables[0]!r} has no state that could be moved")
        return tables[0]


def _slot_arrays(table, given, writable):
    """The arrays for rows and for their state, by name; those that are not given are left out."""
    rows = table.dtype, table.dim * table.dtype.itemsize
    state = (None, 0) if table.state is None else (table.state.dtype, table.state_bytes)
    return {name: slot_array(value, name, *kind, writable)
            for (name, value), kind in zip(given.items(), (rows, state)) if value is not None}
