"""The trainer's fast memory: rows in their slots, and behind them those without one."""

import torch

from .slot_memory import SlotMemory

_MOST = 1 << 16  # slots that are looked through at a time: copies of their rows take little memory


class SlotStorage:
    """One buffer [slots | area], so that a bag with rows of both is pooled in one go.

    What tells which row is where takes 5 bytes a slot, and 4 more from the first `find` until the
    next change; twice as much where flat rows do not fit 32 bits.

    Parameters
    ----------
    slots : int
    area : int
        Rows without a slot to have room for at first.
    kind : RowKind
    flat_rows : int
        That there are.
    memory : SlotMemory
        Where the buffer lies.

    Members
    -------
    rows : Rows
        slots + area of them.
    held : int32[slots] or int64[slots]
        Flat row in each slot, -1 in a free one.
    dirty : bool[slots]
        Slots whose row was trained since it came or was written back.
    """

    def __init__(self, slots, area, kind, flat_rows, memory=None):
        self.slots, self.kind, self.memory = slots, kind, memory or SlotMemory()
        self.rows = kind.allocate(slots + area, self.memory.device)
        self.rows.array.zero_()
        narrow = flat_rows <= torch.iinfo(torch.int32).max
        self.held = torch.full((slots,), -1, dtype=torch.int32 if narrow else torch.int64)
        self.dirty = torch.zeros(slots, dtype=torch.bool)
        self._free, self._by_row = torch.arange(slots, slots + area), None

    @property
    def area_rows(self):
        """Rows without a slot that there is room for."""
        return len(self.rows) - self.slots

    @property
    def metadata_bytes(self):
        """Bytes that say what is in the slots, the sorted index included while there is one."""
        index = () if self._by_row is None else (self._by_row,)
        return sum(each.nbytes for each in (self.held, self.dirty, self._free, *index))

    def grow(self, area):
        """Have room for `area` rows without a slot, in a buffer of its own.

        That is rare, and the one time that the host waits for all that was asked of the memory.
        """
        self._free = torch.cat((self._free, torch.arange(len(self.rows), self.slots + area)))
        self.memory.settle()
        before, self.rows = self.rows, self.kind.allocate(self.slots + area, self.memory.device)
        self.rows.put(slice(len(before)), before)
        self.memory.settle()

    def reserve(self, count):
        """Places of the area int64[count] for rows without a slot, until they are released."""
        if count > len(self._free):
            self.grow(2 * self.area_rows + count)
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def release(self, places):
        self._free = torch.cat((self._free, places))

    def place(self, rows, slots):
        """Say which flat rows some slots hold from here on, the other slots as before."""
        self.held[slots], self.dirty[slots] = rows.to(self.held.dtype), False
        self._by_row = None

    def empty(self, slots=slice(None)):
        """Say that these slots, all unless they are named, hold no row."""
        self.held[slots], self.dirty[slots] = -1, False
        self._by_row = None

    @property
    def hot(self):
        """Flat row of each row in a slot, int64[h] ascending."""
        return self.held[self._sorted()].long()

    @property
    def hot_slots(self):
        """Slot of each of `hot`, int64[h]."""
        return self._sorted().long()

    @property
    def count(self):
        """Rows in slots."""
        return int((self.held >= 0).sum())

    def in_slots(self, dirty=False):
        """The rows in slots, or the dirty ones of them, some at a time in the order of the slots.

        Yields
        ------
        (int64[k], int64[k])
            Flat rows and their slots, at least one.
        """
        for start in range(0, self.slots, _MOST):
            here = slice(start, start + _MOST)
            slots = torch.nonzero(self.dirty[here] if dirty else self.held[here] >= 0).squeeze(1)
            if len(slots):
                slots += start
                yield self.held[slots].long(), slots

    def find(self, rows):
        """(where among `rows` the hot ones are, their slots), int64 both."""
        by_row = self._sorted()
        low, high = torch.zeros_like(rows), torch.full_like(rows, len(by_row))
        for _ in range(len(by_row).bit_length()):  # halves the rest of each row's search
            middle = (low + high) // 2
            below = self.held[by_row[middle.clamp(max=len(by_row) - 1)]] < rows
            below &= low < high
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        where = torch.nonzero(low < len(by_row)).squeeze(1)
        slots = by_row[low[where]].long()
        found = self.held[slots] == rows[where]
        return where[found], slots[found]

    def _sorted(self):
        """Slots that hold a row, by flat row: int32[h]."""
        if self._by_row is None:
            by_row = torch.argsort(self.held)
            self._by_row = by_row[self.slots - self.count:].int()
        return self._by_row
