"""Golden model of what a PLAN writes: slots of lookups, rows to be fetched and written back."""

from dataclasses import dataclass

import numpy as np
from hotrow_rtl.contract.encoding import NO_SLOT

from .combiner import owners
from .miss_table import MissTable


@dataclass(frozen=True)
class PlanLists:
    """Members: `slots` uint32 per lookup that is served; `fill_keys` uint64, `fill_numbers` uint32
    of the rows to be fetched; `victim_keys`, `victim_slots` of those to be written back; `hits` of
    the lookups; `bypasses` of the rows to be fetched, `unkept` of those without a place in the
    table of misses, so that they may be listed again, and `relisted`, whether one was."""

    slots: np.ndarray
    fill_keys: np.ndarray
    fill_numbers: np.ndarray
    victim_keys: np.ndarray
    victim_slots: np.ndarray
    hits: int
    bypasses: int
    unkept: int
    relisted: bool


def plan_lists(config, keys, beat, plan):
    """Lists in the order of lookups.

    Parameters
    ----------
    config : Config
    keys : uint64[n]
        Packed (table, row) of the lookups that are not refused, in order.
    beat : int64[n]
        Number of the beat that carries each.
    plan : Plan
        Of those lookups.

    Returns
    -------
    PlanLists
    """
    owner = owners(keys, beat, config.window_beats)
    rows, first, row = np.unique(keys, return_index=True, return_inverse=True)
    filled = np.isin(rows, _keys(key for _, key in plan.fills))[row]
    bypassed = plan.slots == NO_SLOT

    # Bypassed rows are numbered as the misses of a SPLIT, by owners; a row is filled where it
    # comes first.
    missed = np.flatnonzero(bypassed & (owner == np.arange(len(keys))))
    number, listed, kept = MissTable(config).number(keys[missed])
    place = np.zeros(len(keys), np.int64)
    place[missed] = number
    words = np.where(bypassed, config.slots + place[owner], plan.slots).astype(np.uint32)
    brings = filled & (owner == first[row])
    fetched = np.union1d(missed[listed], first[filled[first]])

    written = [(slot, key) for slot, key, dirty in plan.evictions if dirty]
    return PlanLists(
        slots=words,
        fill_keys=keys[fetched],
        fill_numbers=words[fetched],
        victim_keys=_keys(key for _, key in written),
        victim_slots=np.array([slot for slot, _ in written], np.uint32),
        hits=int(np.count_nonzero(~bypassed & ~brings)),
        bypasses=int(np.count_nonzero(listed)),
        unkept=int(np.count_nonzero(listed & ~kept)),
        relisted=np.count_nonzero(listed) > len(plan.bypassed),
    )


def _keys(keys):
    return np.fromiter(keys, np.uint64)
