"""The steps of a planner, and whether its plans hold. Rows are numbered over all tables."""

from dataclasses import dataclass

import numpy as np

NONE = -1  # no slot, no batch


@dataclass(frozen=True)
class Planned:
    """Plan of one batch, in int64 arrays.

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
