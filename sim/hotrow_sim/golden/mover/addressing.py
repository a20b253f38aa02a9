"""Golden model of the address check: list entries to addresses, and the first error of each."""

import numpy as np
from hotrow_rtl.contract.encoding import OFFSET_WIDTH, Element, Status
from numpy.lib.stride_tricks import as_strided

from ..outcome import FAULT_DECERR, fault_status
from ..region_check import check, unpack_address

KINDS = {each: each.name.lower() for each in Element}
OFFSET_MASK = (1 << OFFSET_WIDTH) - 1


class Errors:
    """Status and address of the first error of each entry.

    Attributes
    ----------
    status : uint8[count]
    address : uint64[count]
        Packed.
    """

    def __init__(self, count):
        self.status = np.zeros(count, np.uint8)
        self.address = np.zeros(count, np.uint64)

    def note(self, status, at=slice(None), address=0):
        """Record `status` for the entries `at` that have no error yet; OK is no error."""
        fresh = (self.status[at] == Status.OK) & (np.asarray(status) != Status.OK)
        self.status[at] = np.where(fresh, status, self.status[at])
        self.address[at] = np.where(fresh, np.asarray(address, np.uint64), self.address[at])


class Items:
    """Sources or destinations of copies: item `number[i]` of an array in memory.

    Parameters
    ----------
    regions : dict of int to Region
    base : int
        Packed address of item 0.
    stride, size : int
        Bytes from one item to the next, and bytes of an item.
    number : uint64[n]
    write : bool
    alignment : int
        Bytes.

    Attributes
    ----------
    address, packed : uint64[n]
        Byte address and packed address.
    status : uint8[n]
        OK, REGION, READ_ONLY or MISALIGNED.
    """

    def __init__(self, regions, base, stride, number, size, write, alignment=1):
        handle, offset = unpack_address(base)
        region, self.base, self.write = regions.get(handle), base, write
        offset = np.uint64(offset) + number * np.uint64(stride)  # no region exceeds 48 bits
        self.number, self.stride, self.size = number, stride, size
        self.packed = np.uint64(handle << OFFSET_WIDTH) | offset & np.uint64(OFFSET_MASK)
        self.address = np.uint64(region.base if region else 0) + offset
        self.status = check(region, offset, size, write)
        misaligned = self.address % np.uint64(alignment) != 0
        self.status = np.where(
            (self.status == Status.OK) & misaligned, Status.MISALIGNED, self.status)

    def array(self, memory, chosen):
        """The memory from the lowest chosen item as uint8[item, size], and the index of each
        chosen item; None if no array covers all of it."""
        address, number = self.address[chosen], self.number[chosen]
        low, first = int(address.min()), number.min()
        octets = memory.view(low, int(address.max()) - low + self.size, self.write)
        if octets is None:
            return None
        place = (number - first).astype(np.int64)
        return as_strided(octets, (int(place.max()) + 1, self.size), (self.stride, 1)), place

    def read(self, memory, chosen):
        """The bytes of the chosen items, uint8[n, size], and the fault of each."""
        faults = np.zeros(np.count_nonzero(chosen), np.uint8)
        found = self.array(memory, chosen) if len(faults) else None
        if found is not None:
            items, place = found
            return items[place], faults
        octets = np.zeros((len(faults), self.size), np.uint8)
        for at, address in enumerate(self.address[chosen].tolist()):
            here = memory.view(address, self.size)
            if here is None:
                faults[at] = FAULT_DECERR
            else:
                octets[at] = here
        return octets, faults

    def store(self, memory, chosen, octets):
        """Write uint8[n, size] to the chosen items, in order; return the fault of each."""
        count = np.count_nonzero(chosen)
        distinct = len(np.unique(self.number[chosen])) == count and self.stride >= self.size
        found = self.array(memory, chosen) if count and distinct else None
        if found is not None:
            items, place = found
            items[place] = octets
            return np.zeros(count, np.uint8)
        return np.array([memory.write(address, each) for address, each in zip(
            self.address[chosen].tolist(), octets, strict=True)], np.uint8)


class ListedRows:
    """The rows that a POOL or UPDATE lists, checked against the tables.

    The first listed row sets the row shape of the command. If its bus word has a fault, or its
    table is unknown or does not fit the card, the command has no shape and every row is refused.

    Parameters
    ----------
    entries : ROW_RECORD[n]
        At least one.
    entry_faults : uint8[n] or 0
        Fault of the bus word of each entry.
    tables : dict of int to Table
    fits : function of Table to bool
        Whether the card can carry the rows of a table.
    state_bytes : int or None
        State size that every row must have; None accepts any.
    operand_faults : uint8[n] or 0
        Fault of the bus word of each row's operand.
    shape_table : int or None
        The table that sets the row shape in the place of that of the first row.

    Attributes
    ----------
    errors : Errors
        Per row, in order of precedence: fault of its entry, table, row, fault of its operand,
        length, shape, then the errors of `items` and `read`.
    row_bytes : int
    kind : str or None
        "fp32", "fp16" or "bf16"; None without a shape.
    """

    def __init__(self, entries, entry_faults, tables, fits, state_bytes=None, operand_faults=0,
                 shape_table=None):
        self.entries, self.tables = entries, tables
        self.errors, self.row_bytes, self.kind = Errors(len(entries)), 0, None
        self.errors.note(fault_status(entry_faults))
        first = tables.get(int(entries["table"][0]) if shape_table is None else shape_table)
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
        """(positions, Items) of the rows of each table; records refused addresses."""
        return self._items(regions, write, lambda table: (
            table.weights, table.stride, table.row_bytes))

    def states(self, regions):
        """(positions, Items) of the states of each table, for writing."""
        return self._items(regions, True, lambda table: (
            table.state, table.state_bytes, table.state_bytes))

    def read(self, items, size, memory):
        """The bytes of the rows without an error, uint8[n, size]; records faults."""
        octets = np.zeros((len(self.entries), size), np.uint8)
        accepted = self.errors.status == Status.OK
        for at, here in items:
            chosen = accepted[at]
            if chosen.any():
                octets[at[chosen]], faults = here.read(memory, chosen)
                self.errors.note(fault_status(faults), at[chosen], here.packed[chosen])
        return octets

    def store(self, items, octets, chosen, memory):
        """Write the bytes of the `chosen` rows, bool[n]; records faults, returns the number of
        rows written."""
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
