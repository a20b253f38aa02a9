"""Rows of several tables by one number each: read ahead, and written to the log."""

from collections.abc import Sequence
from ctypes import byref, c_uint64, c_void_p
from itertools import count, pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..contract.errors import Error
from .native_store import NativeStore
from .table import Table

Ticket = tuple[int, int]  # number, rows


def flat_rows(rows: ArrayLike) -> NDArray[np.int64]:
    """Rows as integers [n], else Error."""
    try:
        found = np.asarray(rows)
    except ValueError as error:
        raise Error(f"expected rows as integers [n]: {error}") from error
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise Error(f"expected rows as integers [n], got {found.dtype} {list(found.shape)}")
    return np.ascontiguousarray(found, np.int64)


class Rows:
    """Rows of tables of one kind; the flat row of row r of table t is first[t] + r.

    Any thread may call, and finish tickets in any order.

    Parameters
    ----------
    store : NativeStore
    tables : sequence of Table
        They have one width, dtype and state.
    numbers : sequence of int
        Of the tables in the store.
    first : sequence of int
        Flat rows between those of two tables are none.

    Raises
    ------
    Error
        The tables differ in kind, or share flat rows.
    """

    def __init__(self, store: NativeStore, tables: Sequence[Table], numbers: Sequence[int],
                 first: Sequence[int]):
        self._store, self._tickets, self._count = store, dict[int, int](), count()
        kinds = {(table.memory_bytes, table.dtype, table.state) for table in tables}
        if len(kinds) != 1 or len(first) != len(tables):
            raise Error(f"expected tables of one width, dtype and state, and a first row of each, "
                        f"got {[table.name for table in tables]} of kinds {sorted(map(str, kinds))}"
                        f" and {len(first)} first rows")
        self._bytes, _, self._state = kinds.pop()
        order = np.argsort(np.asarray(first, np.int64), kind="stable")
        spans = [(int(first[at]), int(first[at]) + tables[at].rows, int(numbers[at]))
                 for at in order]
        if spans[0][0] < 0 or any(one[1] > two[0] for one, two in pairwise(spans)):
            raise Error(f"expected first rows from 0 on at which no table ends in another, got "
                        f"{list(map(int, first))} of {[table.rows for table in tables]} rows")
        self._numbers = np.array([number for *_, number in spans], np.uint16)
        self._first = np.array([begin for begin, *_ in spans], np.int64)
        self.register()

    def register(self) -> None:
        """Make the store know the tables, at first and when it was opened again."""
        view = c_uint64()
        self._store.call("view", self._numbers.ctypes.data, self._first.ctypes.data,
                         len(self._first), byref(view))
        self._view = view.value

    @property
    def tickets(self) -> int:
        """Tickets that have not ended."""
        return len(self._tickets)

    def begin(self, flat: ArrayLike) -> Ticket:
        """Begin to read rows, integers [n] in any order: a ticket for one `finish` or `cancel`."""
        listed, ticket = flat_rows(flat), c_void_p()
        with self._store.using():
            self._store.call("begin", self._view, listed.ctypes.data, len(listed), byref(ticket))
            number = next(self._count)
            self._tickets[number] = ticket.value or 0
        return number, len(listed)

    def finish(self, ticket: Ticket, out: NDArray[Any],
               side: NDArray[np.float32] | None = None) -> None:
        """Write the rows of a ticket, as they are now, to the first rows of an array.

        Parameters
        ----------
        ticket : tuple
            It ends with the call.
        out : [>= n, width]
            Of any dtype whose rows have the bytes of a row in memory.
        side : float32[>= n], optional
            State of each row, exactly where it lies apart.

        Raises
        ------
        Error
            The arrays do not fit (the ticket stays), or the disk did not give a row.
        """
        self._check(out, ticket[1], side, True)
        with self._store.using():
            self._store.call("finish", self._take(ticket), out.ctypes.data, out.strides[0],
                             side.ctypes.data if side is not None else None)

    def cancel(self, ticket: Ticket) -> None:
        """Give a ticket back in place of `finish`."""
        with self._store.using():
            self._store.call("cancel", self._take(ticket))

    def append(self, flat: ArrayLike, source: NDArray[Any],
               side: NDArray[np.float32] | None = None) -> None:
        """Write trained rows, which are the newest from then on.

        Parameters
        ----------
        flat : integers [n]
            Distinct.
        source : [>= n, width]
            As `out` of `finish`.
        side : float32[>= n], optional
            State of each row, exactly where it lies apart.
        """
        listed = flat_rows(flat)
        self._check(source, len(listed), side, False)
        with self._store.using():
            self._store.call("append", self._view, listed.ctypes.data, len(listed),
                             source.ctypes.data, source.strides[0],
                             side.ctypes.data if side is not None else None)

    def end(self) -> None:
        """Cancel every ticket."""
        for number in list(self._tickets):
            self.cancel((number, 0))

    def _take(self, ticket: Ticket) -> int:
        try:
            return self._tickets.pop(ticket[0])
        except KeyError:
            raise Error(f"this ticket has ended, or is none of these rows in {self._store.folder}: "
                        f"call begin() for each finish() or cancel()") from None

    def _check(self, array: NDArray[Any], rows: int, side: NDArray[np.float32] | None,
               written: bool) -> None:
        fits = (array.ndim == 2 and not array.dtype.hasobject
                and array.shape[1] * array.itemsize == self._bytes
                and (array.shape[1] < 2 or array.strides[1] == array.itemsize)
                and len(array) >= rows and (rows < 2 or array.strides[0] >= self._bytes)
                and (array.flags.writeable or not written))
        if side is not None:
            fits &= (side.dtype == np.float32 and side.ndim == 1 and len(side) >= rows
                     and (rows < 2 or side.strides == (4,))
                     and (side.flags.writeable or not written))
        if not fits or (side is not None) != (self._state == "row"):
            raise Error(f"expected {rows} rows of {self._bytes} contiguous bytes, and float32 "
                        f"state exactly where it lies apart, got {array.dtype} "
                        f"{list(array.shape)} and "
                        f"{'none' if side is None else f'{side.dtype} {list(side.shape)}'}")
