"""Golden model of the results of a PLAN: slots of lookups, rows to fetch and rows to write back."""

from dataclasses import dataclass

import numpy as np
from hotrow_rtl.contract.encoding import NO_SLOT

from .combiner import owners
from .miss_table import MissTable


@dataclass(frozen=True)
class PlanLists:
    """Results of a PLAN.

    Attributes
    ----------
    slots : uint32[lookups]
        Of the lookups that are not refused.
    fill_keys, fill_numbers : uint64[entries], uint32[entries]
        Rows to fetch, and their slots or the numbers of bypassed rows.
    victim_keys, victim_slots : uint64[evictions], uint32[evictions]
        Rows to write back, and their slots.
    hits : int
        Lookups of rows that have a slot and need no fill.
    bypasses, unkept : int
        Bypassed rows in the list of fills, and those of them without an entry in the miss table,
        which may be listed again.
    relisted : bool
        A bypassed row is listed more than once.
    """

    slots: np.ndarray
    fill_keys: np.ndarray
    fill_numbers: np.ndarray
    victim_keys: np.ndarray
    victim_slots: np.ndarray
    hits: int
    bypasses: int
    unkept: int
    relisted: bool


def plan_lists(config, keys, beat, plan) -> PlanLists:
    """The lists of a plan, in the order of lookups.

    Parameters
    ----------
    config : Config
    keys : uint64[n]
        Packed (table, row) of the lookups that are not refused, in order.
    beat : int64[n]
        Beat of each lookup.
    plan : Plan
        Of those lookups.
    """
    owner = owners(keys, beat, config.window_beats)
    rows, first, row = np.unique(keys, return_index=True, return_inverse=True)
    filled = np.isin(rows, _keys(key for _, key in plan.fills))[row]
    bypassed = plan.slots == NO_SLOT

    # Bypassed rows are numbered per owner like the misses of a SPLIT; a fill is listed at the
    # first lookup of its row.
    missed = np.flatnonzero(bypassed & (owner == np.arange(len(keys))))
    number, listed, kept = MissTable(config).number(keys[missed])
    numbers = np.zeros(len(keys), np.int64)
    numbers[missed] = number
    words = np.where(bypassed, config.slots + numbers[owner], plan.slots).astype(np.uint32)
    fills_slot = filled & (owner == first[row])
    fetched = np.union1d(missed[listed], first[filled[first]])

    written = [(slot, key) for slot, key, dirty in plan.evictions if dirty]
    return PlanLists(
        slots=words,
        fill_keys=keys[fetched],
        fill_numbers=words[fetched],
        victim_keys=_keys(key for _, key in written),
        victim_slots=np.array([slot for slot, _ in written], np.uint32),
        hits=int(np.count_nonzero(~bypassed & ~fills_slot)),
        bypasses=int(np.count_nonzero(listed)),
        unkept=int(np.count_nonzero(listed & ~kept)),
        relisted=np.count_nonzero(listed) > len(plan.bypassed),
    )


def _keys(keys):
    return np.fromiter(keys, np.uint64)
