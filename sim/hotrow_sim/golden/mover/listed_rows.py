"""The rows that POOL or UPDATE lists: all of one shape, and which of them are refused."""

import numpy as np
from hotrow_rtl.contract.encoding import Element, Status

from .addressing import Errors, Items, fault_status

KINDS = {each: each.name.lower() for each in Element}


class ListedRows:
    """Listed rows, checked against the tables.

    The first listed row gives the shape of all. If it comes with a bus fault, or its table is
    unknown or cannot be carried, there is none, and every row is refused.

    Parameters
    ----------
    entries : ROW_RECORD[n]
        At least one.
    entry_faults : uint8[n] or 0
        How the bus words of the list answered; 0 is well.
    tables : dict of int to Table
    fits : function of Table to bool
        Whether its rows can be carried.
    state_bytes : int or None
        That a row must have; None for any.
    operand_faults : uint8[n] or 0
        Of the words with what belongs to the rows.

    Members
    -------
    errors : Errors
        Of each row: bus fault of its entry, table, row, fault of its operand, length, shape, and
        what `items` and `read` find.
    row_bytes : int
    kind : str or None
        "fp32", "fp16" or "bf16"; None if there is no shape.
    """

    def __init__(self, entries, entry_faults, tables, fits, state_bytes=None, operand_faults=0):
        self.entries, self.tables = entries, tables
        self.errors, self.row_bytes, self.kind = Errors(len(entries)), 0, None
        self.errors.note(fault_status(entry_faults))
        first = tables.get(int(entries["table"][0]))
        if self.errors.status[0] == Status.OK and first is not None and fits(first):
            self.row_bytes, self.kind = first.row_bytes, KINDS.get(first.type)
        operand_faults = np.broadcast_to(operand_faults, len(entries))
        for table, at in self._by_table():
            if table is None:
                self.errors.note(Status.TABLE_UNKNOWN, at)
                continue
            rows = entries["row"][at].astype(np.uint64)
            self.errors.note(
                np.where(rows > table.last_row, Status.ROW_OUT_OF_RANGE, Status.OK), at)
            self.errors.note(fault_status(operand_faults[at]), at)
            self.errors.note(Status.OK if fits(table) else Status.STRIDE, at)
            alike = (self.kind and (table.row_bytes, KINDS.get(table.type)) == (
                self.row_bytes, self.kind) and state_bytes in (None, table.state_bytes))
            self.errors.note(Status.OK if alike else Status.ROW_SHAPE, at)

    def items(self, regions, write=False):
        """(positions, Items) of the rows of each table; refused addresses are noted."""
        return self._items(regions, write, lambda table: (
            table.weights, table.stride, table.row_bytes))

    def states(self, regions):
        """The same of their states, which are written."""
        return self._items(regions, True, lambda table: (
            table.state, table.state_bytes, table.state_bytes))

    def read(self, items, size, memory):
        """The bytes of the rows that are accepted so far, uint8[n, size]; faults are noted."""
        octets = np.zeros((len(self.entries), size), np.uint8)
        accepted = self.errors.status == Status.OK
        for at, here in items:
            chosen = accepted[at]
            if chosen.any():
                octets[at[chosen]], faults = here.read(memory, chosen)
                self.errors.note(fault_status(faults), at[chosen], here.packed[chosen])
        return octets

    def store(self, items, octets, chosen, memory):
        """Write the bytes of the `chosen` rows, bool[n]; the number of rows written. Faults are
        noted."""
        written = 0
        for at, here in items:
            mine = chosen[at]
            if mine.any():
                faults = here.store(memory, mine, octets[at[mine]])
                self.errors.note(fault_status(faults), at[mine], here.packed[mine])
                written += int(np.count_nonzero(faults == 0))
        return written

    def _items(self, regions, write, place):
        found = []
        for table, at in self._by_table():
            if table is not None:
                base, stride, size = place(table)
                rows = self.entries["row"][at].astype(np.uint64)
                items = Items(regions, base, stride, rows, size, write)
                self.errors.note(items.status, at, items.packed)
                found.append((at, items))
        return found

    def _by_table(self):
        """(Table or None, positions) of every table listed."""
        for number in np.unique(self.entries["table"]):
            yield self.tables.get(int(number)), np.flatnonzero(self.entries["table"] == number)
