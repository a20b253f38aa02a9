"""Lists of (table, row) pairs as callers give them, checked against the registered tables."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..contract.errors import BatchError
from .integers import Integers, integers, vector
from .results import RowList
from .table import Table
from .tables import Tables, TableSet

Rows: TypeAlias = RowList | tuple[Table | ArrayLike, ArrayLike]
_LARGEST = 0xFFFF_FFFF


def row_list(rows: Rows, tables: Tables) -> RowList:
    """`rows` as two uint32 arrays of one length.

    Parameters
    ----------
    rows : HotRows, RowList or (table, row)
        `row` is integers [n]; `table` integers [n], or one Table or number for all.
    tables : Tables

    Raises
    ------
    BatchError
        If they are not integers, or not of one length, or beyond 32 bits.
    RegistrationError
        If a Table is not registered with this device.
    """
    table: Any
    row: Any
    if isinstance(rows, RowList):
        if rows.tables is not None:
            return rows
        table, row = rows.table, rows.row
    else:
        try:
            table, row = rows
        except (TypeError, ValueError) as wrong:
            raise BatchError(
                f"expected rows as HotRows, a RowList or a pair (table, row), not "
                f"{type(rows).__name__}") from wrong
    row = vector(row, "rows")
    if isinstance(table, Table):
        table = tables.check(table).number
    table = integers(table, "tables of the rows")
    table = np.full(len(row), table) if table.ndim == 0 else vector(table, "tables of the rows")
    if len(table) != len(row):
        raise BatchError(f"{len(table)} table numbers for {len(row)} rows: expected one for each")
    for what, values in (("row", row), ("table", table)):
        if values.dtype == np.uint32 or not len(values):
            continue
        if values.min() < 0 or values.max() > _LARGEST:
            at = int(np.flatnonzero((values < 0) | (values > _LARGEST))[0])
            kind = "is negative" if values[at] < 0 else "is beyond 32 bits"
            raise BatchError(f"{what} {values[at]} {kind} (position {at} of the list)",
                             position=at, table=int(table[at]), row=int(row[at]))
    return RowList(table.astype(np.uint32, copy=False), row.astype(np.uint32, copy=False))


def check_rows(rows: RowList, tables: Tables, positions: Integers | None = None) -> None:
    """Raise BatchError if a listed row does not exist.

    Parameters
    ----------
    rows : RowList
        Its tables are registered.
    tables : Tables
    positions : integers [rows], optional
        Place of each entry in the list that the caller gave, if `rows` is another list.
    """
    wrong = np.flatnonzero(rows.row > tables.last_rows[rows.table])
    if wrong.size:
        first = wrong[0] if positions is None else wrong[np.argmin(positions[wrong])]
        raise refusal(rows, int(first), tables, positions)


def check_distinct(rows: RowList, tables: Tables) -> None:
    """Raise BatchError if a row is listed twice."""
    keys = rows.keys
    ordered = np.sort(keys)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if again.size:
        first, second = (int(place) for place in np.flatnonzero(keys == again[0])[:2])
        number, row = int(rows.table[second]), int(rows.row[second])
        table = tables[number]
        raise BatchError(
            f"row {row} of table {number} ({table.name if table else ''!r}) is listed twice "
            f"(positions {first} and {second} of the list): rows that are written must be distinct",
            position=second, table=number, row=row)


def tables_of(rows: RowList, tables: Tables) -> TableSet:
    """The tables that a list names, each once, their memory checked."""
    known = rows.tables
    if known is not None and known.generation is tables.generation:
        known.check()
        return known
    unknown = rows.table >= len(tables.last_rows)
    if unknown.any():
        raise refusal(rows, int(unknown.argmax()), tables)
    found = []
    for number in np.flatnonzero(np.bincount(rows.table)):
        table = tables[int(number)]
        if table is None:
            raise refusal(rows, int((rows.table == number).argmax()), tables)
        found.append(table)
    named = tables.set_of(found)
    named.check()
    return named


def is_known(rows: RowList, tables: TableSet) -> bool:
    """Whether the rows are known to be of these tables, each listed once."""
    return rows.tables is tables


def refusal(rows: RowList, position: int, tables: Tables,
            positions: Integers | None = None) -> BatchError:
    """The error about the entry at a position; `positions` as in `check_rows`."""
    number, row = int(rows.table[position]), int(rows.row[position])
    table = tables[number]
    if table is None:
        known = ", ".join(f"{each.number} ({each.name!r})" for each in tables.registered)
        text = f"there is no table {number}, those registered are {known or 'none'}"
    else:
        text = (f"row {row} is out of range: table {number} ({table.name!r}) has rows 0 to "
                f"{table.rows - 1}")
    position = position if positions is None else int(positions[position])
    return BatchError(f"{text} (position {position} of the list)", position=position,
                      table=number, row=row)
