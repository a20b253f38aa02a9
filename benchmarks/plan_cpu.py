"""The planner's work on this machine's CPU: LRU over all slots, with holds, in NumPy and PyTorch.

Rows are numbered over all tables, and an array holds the slot of each: there is no hash and no set.
The CPU chooses a victim among all slots, the card among those of two sets.
"""

from dataclasses import dataclass

import numpy as np

NONE = -1  # no slot, no row, no batch


@dataclass(frozen=True)
class Planned:
    """Plan of one batch, in int64 arrays or tensors.

    Attributes
    ----------
    slots : [lookups]
        Slot of each lookup's row, or the number of slots + k of the k-th bypassed row.
    fills : [n]
        Rows without a slot, in order; their slots are those of their lookups.
    evicted : [m]
        Rows that left a slot.
    """

    slots: object
    fills: object
    evicted: object


class NumpyPlanner:
    """Plans batches by arrays over rows and slots.

    Parameters
    ----------
    rows, slots, longest : int
        Rows of all tables, slots of the trainer, lookups of the longest batch.
    """

    def __init__(self, rows, slots, longest):
        self.slots = slots
        self.slot_of = np.full(rows, NONE, np.int64)
        self.row_at, self.needed, self.used = (np.full(slots, NONE, np.int64) for _ in range(3))
        self._place_of = np.empty(rows, np.int64)
        self._places = np.arange(longest)

    def mark(self, rows, batch):
        """Hold the rows that have slots for a coming batch."""
        slots = self.slot_of[rows]
        slots = slots[slots >= 0]
        self.needed[slots] = batch  # the newest of all so far

    def plan(self, rows, batch, retired) -> Planned:
        """Give slots to the rows of a batch; evict no row that a batch after `retired` needs."""
        # Each lookup writes its place to its row; the first, written last, represents the row.
        places = self._places[:len(rows)]
        self._place_of[rows[::-1]] = places[::-1]
        owns = self._place_of[rows] == places
        unique = rows[owns]
        slots = self.slot_of[unique]
        hit = slots >= 0
        resident = slots[hit]
        self.needed[resident] = np.maximum(self.needed[resident], batch)
        self.used[resident] = batch
        fills = unique[~hit]
        free = np.flatnonzero(self.needed <= retired)
        if len(free) > len(fills):
            free = free[np.argpartition(self.used[free], len(fills) - 1)[:len(fills)]
                        if len(fills) else slice(0)]
        taken = fills[:len(free)]
        evicted = self.row_at[free]
        evicted = evicted[evicted >= 0]
        self.slot_of[evicted] = NONE
        self.slot_of[taken], self.row_at[free] = free, taken
        self.needed[free] = self.used[free] = batch
        given = self.slot_of[unique]
        bypassed = given < 0
        given[bypassed] = self.slots + np.arange(np.count_nonzero(bypassed))
        number = np.cumsum(owns) - 1
        return Planned(given[number[self._place_of[rows]]], fills, evicted)


class TorchPlanner:
    """The same in PyTorch, where any lookup may represent its row."""

    def __init__(self, rows, slots, longest):
        import torch

        self.torch, self.slots = torch, slots
        self.slot_of = torch.full((rows,), NONE)
        self.row_at, self.needed, self.used = (torch.full((slots,), NONE) for _ in range(3))
        self._place_of = torch.empty(rows, dtype=torch.int64)
        self._places = torch.arange(longest)

    def mark(self, rows, batch):
        slots = self.slot_of[rows]
        self.needed[slots[slots >= 0]] = batch

    def plan(self, rows, batch, retired) -> Planned:
        torch = self.torch
        places = self._places[:len(rows)]
        self._place_of[rows] = places
        place = self._place_of[rows]
        owns = place == places
        unique = rows[owns]
        slots = self.slot_of[unique]
        hit = slots >= 0
        resident = slots[hit]
        self.needed[resident] = self.needed[resident].clamp_(min=batch)
        self.used[resident] = batch
        fills = unique[~hit]
        free = (self.needed <= retired).nonzero().ravel()
        if len(free) > len(fills):
            free = free[self.used[free].topk(len(fills), largest=False, sorted=False).indices]
        taken = fills[:len(free)]
        evicted = self.row_at[free]
        evicted = evicted[evicted >= 0]
        self.slot_of[evicted] = NONE
        self.slot_of[taken], self.row_at[free] = free, taken
        self.needed[free] = self.used[free] = batch
        given = self.slot_of[unique]
        bypassed = given < 0
        given[bypassed] = self.slots + torch.arange(int(bypassed.sum()))
        number = owns.cumsum(0) - 1
        return Planned(given[number[place]], fills, evicted)


def steps_of(count, future):
    """Steps over `count` batches, in order: ("mark", batch) and ("plan", batch)."""
    steps = [("mark", batch) for batch in range(min(future, count))]
    for batch in range(count):
        if batch + future < count:
            steps.append(("mark", batch + future))
        steps.append(("plan", batch))
    return steps


def retired_by(batch, past):
    """Newest batch that is retired when this one is planned."""
    return max(batch - past - 1, NONE)


def check(batches, planned, slots, past, future, rows):
    """Whether a planner's results hold, and their counts.

    Parameters
    ----------
    batches : list of int64[n]
        Rows of each batch, numbered over all tables.
    planned : list of Planned
        In NumPy arrays.
    slots, past, future, rows : int
        Slots of the trainer, the window, rows of all tables.

    Returns
    -------
    sound : bool
        Every lookup has the slot of its row, or its row's own place in the bypass area.
    counts : dict
        `unique`, `hits` (rows that had a slot), `fills`, `evictions`, `bypasses`,
        `held_evictions` (rows that a batch of the window needed).
    """
    slot_of, needed = np.full(rows, NONE, np.int64), np.full(rows, NONE, np.int64)
    counts = dict.fromkeys(
        ("unique", "hits", "fills", "evictions", "bypasses", "held_evictions"), 0)
    sound = True
    for step, batch in steps_of(len(batches), future):
        found = np.unique(batches[batch])
        if step == "mark":
            held = found[slot_of[found] >= 0]
            needed[held] = np.maximum(needed[held], batch)
            continue
        plan = planned[batch]
        counts["unique"] += len(found)
        counts["hits"] += int(np.count_nonzero(slot_of[found] >= 0))
        counts["held_evictions"] += int(np.count_nonzero(
            needed[plan.evicted] > retired_by(batch, past)))
        counts["fills"] += len(plan.fills)
        counts["evictions"] += len(plan.evicted)
        sound &= bool((slot_of[plan.evicted] >= 0).all() and (slot_of[plan.fills] < 0).all()
                      and len(np.unique(plan.fills)) == len(plan.fills))
        slot_of[plan.evicted] = needed[plan.evicted] = NONE
        # All lookups of a row agree, and no two rows share a place.
        place = slot_of[found]
        slot_of[batches[batch]] = plan.slots
        sound &= bool((slot_of[batches[batch]] == plan.slots).all()
                      and len(np.unique(plan.slots)) == len(found)
                      and ((place < 0) | (place == slot_of[found])).all()
                      and np.isin(found[place < 0], plan.fills).all())
        bypassed = found[slot_of[found] >= slots]
        counts["bypasses"] += len(bypassed)
        slot_of[bypassed] = NONE
        kept = found[slot_of[found] >= 0]
        needed[kept] = np.maximum(needed[kept], batch)
    resident = slot_of[slot_of >= 0]
    return sound and len(np.unique(resident)) == len(resident), counts
