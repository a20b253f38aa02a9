"""Rows between tables and the trainer's slots: GATHER and SCATTER."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..contract.errors import RegistrationError
from ..contract.generated import ROW_ALIGNMENT, STATE_ALIGNMENT, GatherFlag, Opcode
from ..memory.buffer import Array, Buffer, Held
from ..operands.integers import Integers
from ..operands.results import Done
from ..operands.row_lists import Rows, check_distinct, is_known, row_list
from ..operands.slot_arrays import slot_array, slot_list, stride_of
from ..operands.staging import Lease
from ..operands.table import Table
from ..queues.commands import Commands
from ..queues.futures import Completion, Future
from .row_operands import RowOperands


class Mover:
    """Part of `Device`; each method returns the future of a command."""

    def __init__(self, commands: Commands, rows: RowOperands):
        self._commands, self._rows = commands, rows

    def gather(self, rows: Rows, out: Buffer | Array | None = None, slots: ArrayLike | None = None,
               state_out: Buffer | Array | None = None) -> Future[NDArray[Any]]:
        """Copy the listed rows of registered tables.

        Parameters
        ----------
        rows : HotRows, RowList or (table, row)
            Of tables with one dim, element type and state size.
        out : Buffer, numpy.ndarray or torch tensor [n, dim], optional
            Receives row i at out[slots[i]], or at out[i]; memory of its own when absent. The device
            writes rows that are not padded there directly; the base must then be a multiple of 16,
            and the memory apart from that of the rows.
        slots : integers [rows], optional
            Distinct places in `out` and `state_out`; not checked where `rows.tables` are given.
        state_out : Buffer, numpy.ndarray or torch tensor [n] or [n, m], optional
            Receives the rows' optimizer state in the same manner.

        Returns
        -------
        numpy.ndarray [n, dim]
            `out`, or an array of the rows in the order of the list.
        """
        listed, commands = row_list(rows, self._commands.tables), self._commands
        tables = self._rows.tables(listed, with_state=state_out is not None)
        table, count = tables[0], len(listed)
        arrays = _slot_arrays(table, ("out", out), ("state_out", state_out), writable=True)
        target, state = arrays.get("out"), arrays.get("state_out")
        places = slot_list(slots, count, arrays, distinct=not is_known(listed, tables))
        if not count:
            return Future.of(np.empty((0, table.dim), table.dtype) if target is None else target)

        with commands.open(Opcode.GATHER) as held:
            operands = self._rows.stage(listed, tables, held)
            every = slice(count)
            chosen: slice | Integers = every if places is None else places
            copies: list[tuple[NDArray[Any], slice | Integers, Lease, int, int]] = []
            result = np.empty((count, table.dim), table.dtype) if target is None else target
            # The device writes whole rows, padding included, and packed state.
            packed = state is None or state.flags.c_contiguous
            if target is not None and not table.padded and packed:
                operands |= self._in_place(table, target, state, places, held)
            else:
                commands.regions.check_copied("out or state_out", target, state)
                lease = commands.results.lease(count * table.row_bytes, held)
                operands |= {"destination": lease.address, "stride": table.row_bytes}
                copies.append((result, every if target is None else chosen, lease,
                               table.row_bytes, table.dim))
                if state is not None:
                    lease = commands.results.lease(count * table.state_bytes, held)
                    operands["state_destination"] = lease.address
                    copies.append((state, chosen, lease, table.state_bytes,
                                   table.state_bytes // state.itemsize))
            if state is not None:
                operands["flags"] = operands.get("flags", 0) | GatherFlag.STATE

            def finish(c: Completion) -> NDArray[Any]:
                commands.check(c, listed)
                for destination, where, lease, row_bytes, columns in copies:
                    moved = lease.written(
                        destination.dtype, count * row_bytes // destination.itemsize)
                    destination[where] = moved.reshape(count, -1)[:, :columns].reshape(
                        -1, *destination.shape[1:])
                return result

            return commands.submit(Opcode.GATHER, operands, finish, held)

    def scatter(self, rows: Rows, values: Buffer | Array, slots: ArrayLike | None = None,
                state: Buffer | Array | None = None) -> Future[Done]:
        """Write rows of registered tables: the reverse of `gather`.

        Parameters
        ----------
        rows : HotRows, RowList or (table, row)
            Of tables with one dim, element type and state size, registered from writable arrays.
            Distinct, because a card with several row ports writes rows in any order.
        values : Buffer, numpy.ndarray or torch tensor [n, dim]
            Row i of the list becomes values[slots[i]], or values[i]. The device reads rows that are
            not padded directly from registered memory.
        slots : integers [rows], optional
            Places in `values` and `state`.
        state : Buffer, numpy.ndarray or torch tensor [n] or [n, m], optional
            The rows' optimizer state, in the same manner.
        """
        listed, commands = row_list(rows, self._commands.tables), self._commands
        tables = self._rows.tables(listed, with_state=state is not None)
        table, count = tables[0], len(listed)
        arrays = _slot_arrays(table, ("values", values), ("state", state), writable=False)
        places = slot_list(slots, count, arrays, distinct=False)
        for buffer in (buffer for buffer in tables.buffers if not buffer.writable):
            if any(buffer in each.buffers[:len(arrays)] for each in tables if count):
                raise RegistrationError(f"{buffer.name} cannot be written: it was registered "
                                        f"from a read-only array")
        if not count:
            return Future.of(Done(0))

        with commands.open(Opcode.SCATTER) as held:
            operands = self._rows.stage(listed, tables, held)
            if commands.settings.check_ids and not is_known(listed, tables):
                check_distinct(listed, commands.tables)
            in_place = self._find_slots(table, arrays, held)
            if in_place is None:
                operands |= self._stage_slots(table, arrays, places, count, held)
            else:
                operands |= in_place | self._targets(places, held)
            if state is not None:
                operands["flags"] = operands.get("flags", 0) | GatherFlag.STATE
            return commands.submit(
                Opcode.SCATTER, operands, partial(commands.done, rows=listed), held)

    def _targets(self, places: Integers | None, held: Held) -> dict[str, int]:
        """Operands that name the slot of each row, unless row i belongs to slot i."""
        if places is None:
            return {}
        return {"targets": self._commands.staging.stage(places.astype(np.uint32, copy=False), held),
                "flags": GatherFlag.LISTED}

    def _in_place(self, table: Table, target: NDArray[Any], state: NDArray[Any] | None,
                  places: Integers | None, held: Held) -> dict[str, int]:
        """Operands of a GATHER that writes to the caller's arrays."""
        regions = self._commands.regions
        operands = self._targets(places, held) | {
            "destination": regions.reach(target, "out", True, ROW_ALIGNMENT, held),
            "stride": stride_of(target, "out", table)}
        if state is not None:
            operands["state_destination"] = regions.reach(
                state, "state_out", True, STATE_ALIGNMENT, held)
        return operands

    def _find_slots(self, table: Table, arrays: dict[str, NDArray[Any]],
                    held: Held) -> dict[str, int] | None:
        """Operands of a SCATTER that reads the caller's arrays, or None where it cannot."""
        values, state = arrays["values"], arrays.get("state")
        wanted = {"rows": (values, ROW_ALIGNMENT)}
        if state is not None:
            wanted["state_rows"] = (state, STATE_ALIGNMENT)
        regions, operands = self._commands.regions, {}
        if not table.padded and (state is None or state.flags.c_contiguous):
            with suppress(RegistrationError):
                operands["stride"] = stride_of(values, "values", table)
        for name, (array, alignment) in wanted.items():
            address = regions.find_in_place(array, alignment, held) if operands else None
            if address is None:
                regions.check_copied("values or state", values, state)
                return None
            operands[name] = address
        return operands

    def _stage_slots(self, table: Table, arrays: dict[str, NDArray[Any]], places: Integers | None,
                     count: int, held: Held) -> dict[str, int]:
        """Operands that name copies of the slots, in the order of the list."""
        staging = self._commands.staging
        chosen = slice(count) if places is None else places
        lease = staging.lease(count * table.row_bytes, held)
        padded = lease.rows(table.dtype, count, table.row_bytes)
        padded[:, :table.dim] = arrays["values"][chosen].reshape(count, table.dim)
        padded[:, table.dim:] = 0
        operands = {"rows": lease.address, "stride": table.row_bytes}
        if (state := arrays.get("state")) is not None:
            lease = staging.lease(count * table.state_bytes, held)
            packed = lease.rows(state.dtype, count, table.state_bytes)
            packed[:] = state[chosen].reshape(count, -1)
            operands["state_rows"] = lease.address
        return operands


def _slot_arrays(table: Table, rows: tuple[str, Any], state: tuple[str, Any],
                 writable: bool) -> dict[str, NDArray[Any]]:
    """The arrays for rows and for state by name, without the absent ones."""
    arrays, (name, value), (of_state, states) = {}, rows, state
    if value is not None or not writable:
        row_bytes = table.dim * table.dtype.itemsize
        arrays[name] = slot_array(value, name, table.dtype, row_bytes, writable)
    if states is not None and table.state_dtype is not None:
        arrays[of_state] = slot_array(
            states, of_state, table.state_dtype, table.state_bytes, writable)
    return arrays
