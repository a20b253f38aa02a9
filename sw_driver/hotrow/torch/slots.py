"""The trainer's fast memory: rows in their slots, and behind them those without one."""

import torch


class SlotStorage:
    """One buffer [slots | area], so that a bag with rows of both is pooled in one go.

    Parameters
    ----------
    slots : int
    area : int
        Rows without a slot to have room for at first.
    kind : RowKind
    device : torch device
        Whose memory it is.

    Members
    -------
    rows : Rows
        slots + area of them.
    held : int64[slots]
        Flat row in each slot, -1 in a free one.
    dirty : bool[slots]
        Slots whose row was trained since it came or was written back.
    hot : int64[h]
        Flat row of each hot row, that is each one in a slot, ascending.
    hot_slots : int64[h]
        Its slot.
    """

    def __init__(self, slots, area, kind, device="cpu"):
        self.slots, self.kind = slots, kind
        self.rows = kind.allocate(slots + area, device)
        self.rows.array.zero_()
        self.held = torch.full((slots,), -1, dtype=torch.int64)
        self.dirty = torch.zeros(slots, dtype=torch.bool)
        self._free, self._index = torch.arange(slots, slots + area), None

    @property
    def area_rows(self):
        """Rows without a slot that there is room for."""
        return len(self.rows) - self.slots

    @property
    def metadata_bytes(self):
        """Bytes that say what is in the slots, the sorted index included while there is one."""
        index = self._index or ()
        return sum(each.nbytes for each in (self.held, self.dirty, self._free, *index))

    def grow(self, area):
        """Have room for `area` rows without a slot, in a buffer of its own."""
        self._free = torch.cat((self._free, torch.arange(len(self.rows), self.slots + area)))
        before, self.rows = self.rows, self.kind.allocate(
            self.slots + area, self.rows.weights.device)
        self.rows.put(slice(len(before)), before)

    def reserve(self, count):
        """Places of the area int64[count] for rows without a slot, until they are released."""
        if count > len(self._free):
            self.grow(2 * self.area_rows + count)
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def release(self, places):
        self._free = torch.cat((self._free, places))

    def assign(self, rows, slots):
        """Say which flat row each slot holds; int64[h] both, in any order."""
        self.held.fill_(-1)
        self.place(rows, slots)

    def place(self, rows, slots):
        """Say which flat rows some slots hold from here on, the other slots as before."""
        self.held[slots], self.dirty[slots] = rows, False
        self._index = None

    @property
    def hot(self):
        return self._sorted()[0]

    @property
    def hot_slots(self):
        return self._sorted()[1]

    def find(self, rows):
        """(where among `rows` the hot ones are, their slots), int64 both."""
        hot, slots = self._sorted()
        if not len(hot):
            return hot, slots
        at = torch.searchsorted(hot, rows).clamp_(max=len(hot) - 1)
        where = torch.nonzero(hot[at] == rows).squeeze(1)
        return where, slots[at[where]]

    def _sorted(self):
        if self._index is None:
            slots = torch.nonzero(self.held >= 0).squeeze(1)
            hot, order = self.held[slots].sort()
            self._index = hot, slots[order]
        return self._index
