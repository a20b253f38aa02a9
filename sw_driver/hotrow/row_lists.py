"""Lists of (table, row) pairs as callers give them, checked against the registered tables."""

import numpy as np

from .errors import BatchError
from .integers import vector
from .results import RowList
from .tables import Table


def row_list(rows) -> RowList:
    """`rows` as two uint32 arrays of one length.

    Parameters
    ----------
    rows : HotRows, RowList or (table, row)
        `row` is integers [n]; `table` integers [n], or one Table or number for all.

    Raises
    ------
    BatchError
        If they are not integers, or not of one length, or beyond 32 bits.
    """
    if isinstance(rows, RowList):
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
        table = table.number
    table = np.full(len(row), table) if np.ndim(table) == 0 else table
    table = vector(table, "tables of the rows")
    if len(table) != len(row):
        raise BatchError(f"{len(table)} table numbers for {len(row)} rows: expected one for each")
    for what, values in (("row", row), ("table", table)):
        wrong = np.flatnonzero((values < 0) | (values > 0xFFFF_FFFF))
        if wrong.size:
            at = int(wrong[0])
            kind = "is negative" if values[at] < 0 else "is beyond 32 bits"
            raise BatchError(f"{what} {values[at]} {kind} (position {at} of the list)",
                             position=at, table=int(table[at]), row=int(row[at]))
    return RowList(table.astype(np.uint32, copy=False), row.astype(np.uint32, copy=False))


def check_rows(rows, tables, positions=None):
    """Raise BatchError if a listed row does not exist, RegistrationError if its table changed.

    Parameters
    ----------
    rows : RowList
    tables : Tables
    positions : integers [rows] or None
        Of the rows in the list that the caller gave, if that is another one.
    """
    for table in tables_of(rows, tables):
        wrong = np.flatnonzero((rows.table == table.number) & (rows.row > table.rows - 1))
        if wrong.size:
            first = wrong[0] if positions is None else wrong[np.argmin(positions[wrong])]
            raise refusal(rows, int(first), tables, positions)


def check_distinct(rows, tables):
    """Raise BatchError if a row is listed twice.

    Parameters
    ----------
    rows : RowList
    tables : Tables
    """
    keys = rows.table.astype(np.uint64) << np.uint64(32) | rows.row
    order = np.argsort(keys, kind="stable")
    again = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    if again.size:
        first, second = (int(order[again[0] + step]) for step in (0, 1))
        number, row = int(rows.table[second]), int(rows.row[second])
        raise BatchError(
            f"row {row} of table {number} ({tables[number].name!r}) is listed twice (positions "
            f"{first} and {second} of the list): rows that are written must be distinct",
            position=second, table=number, row=row)


def tables_of(rows, tables) -> list[Table]:
    """The tables that a list names, each once, their memory checked."""
    numbers, first = np.unique(rows.table, return_index=True)
    found = []
    for number, position in zip(numbers, first):
        table = tables[int(number)]
        if table is None:
            raise refusal(rows, int(position), tables)
        table.check()
        found.append(table)
    return found


def refusal(rows, position, tables, positions=None) -> BatchError:
    """The error that the entry at a position deserves; `positions` as of `check_rows`."""
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
