"""The trainer's fast memory: hot rows in their slots, and behind them the cold rows of a batch."""

import numpy as np
import torch

from ..memory import empty
from .rows import Rows


class SlotStorage:
    """One buffer [slots | cold area], so that a bag with hits and misses is pooled in one go.

    Parameters
    ----------
    slots : int
        Slots of the device's directory.
    cold : int
        Cold rows to have room for at first.
    dim : int
    with_state : bool

    Members
    -------
    rows : Rows
        slots + cold of them.
    hot : int64[h]
        Flat row of each hot row, ascending.
    hot_slots : int64[h]
        Its slot.
    """

    def __init__(self, slots, cold, dim, with_state):
        self.slots = slots
        weights = torch.from_numpy(empty((slots + cold, dim), np.float32)).zero_()
        state = torch.from_numpy(empty(slots + cold, np.float32)).zero_() if with_state else None
        self.rows = Rows(weights, state)
        self.assign(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))

    @property
    def cold_rows(self):
        """Cold rows that there is room for."""
        return len(self.rows.weights) - self.slots

    def with_room(self, cold):
        """A storage of the same hot rows with room for `cold` cold ones."""
        weights, state = self.rows.read(slice(self.slots))
        larger = SlotStorage(self.slots, cold, weights.shape[1], state is not None)
        larger.rows.write(slice(self.slots), weights, state)
        larger.assign(self.hot, self.hot_slots)
        return larger

    def assign(self, rows, slots):
        """Say which flat row each slot holds; int64[h] both, in any order."""
        self.hot, order = rows.sort()
        self.hot_slots = slots[order]

    def find(self, rows):
        """(where among `rows` the hot ones are, their slots), int64 both."""
        if not len(self.hot):
            return self.hot, self.hot_slots
        at = torch.searchsorted(self.hot, rows).clamp_(max=len(self.hot) - 1)
        where = torch.nonzero(self.hot[at] == rows).squeeze(1)
        return where, self.hot_slots[at[where]]
