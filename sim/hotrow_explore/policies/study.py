"""Runs the planner's model over the batches of a trace, policy by policy."""

from collections import deque
from dataclasses import replace

import numpy as np
from hotrow_rtl.config import Config
from hotrow_sim.golden.planner import Planner
from hotrow_sim.golden.schedule import Offsets

from .bounds import belady, least_recent

LEARNING_SHARE = 0.2  # of the batches, at least one: what the ranks of `freq` are learned on
# Name in the table, policy, admission by frequency.
RUNS = (("lru", "lru", False), ("rrip", "rrip", False), ("lfu", "lfu", False),
        ("lfu, admission", "lfu", True), ("freq", "freq", False), ("freq, admission", "freq", True))


def sized(config: Config, slots) -> Config:
    """The same card with so many slots.

    Raises
    ------
    ValueError
        If they are no power of two, or too few for its banks.
    """
    sets, rest = divmod(slots, config.directory_choices * config.directory_ways)
    if rest or not sets or sets & (sets - 1):
        raise ValueError(f"slots must be a power of two of at least "
                         f"{config.directory_choices * config.directory_ways * config.banks}, "
                         f"not {slots}")
    return replace(config, name=f"{config.name}-{slots}-slots", directory_sets=sets,
                   directory_partitions=min(config.directory_partitions, sets // config.banks))


def study(config: Config, batches, offsets: Offsets, begin) -> dict:
    """Compare all policies.

    Parameters
    ----------
    config : Config
    batches : list of (int[n], int[n])
        Table and row of each lookup.
    offsets : Offsets
        Of the stages, from which the window comes.
    begin : callable
        Takes what is done next and of how many parts it is, and gives what to call as each is done.

    Returns
    -------
    dict
        Sizes, and a record for each policy under `policies`.
    """
    keys = [table.astype(np.uint64) << np.uint64(32) | row.astype(np.uint64)
            for table, row in batches]
    unique = [_by_first_lookup(each) for each in keys]
    rows, lookups = sum(map(len, unique)), sum(map(len, keys))
    live, ranks = _counts(keys, max(1, int(LEARNING_SHARE * len(keys))))
    records = []
    for name, policy, admission in RUNS:
        counts = {"lfu": live, "freq": ranks}.get(policy, [None] * len(keys))
        planner = Planner(config, policy, admission)
        records.append({"policy": name} | _run(
            planner, batches, counts, offsets, begin(name, len(batches)), rows, lookups))
    for name, bound in (("lru, one set", least_recent), ("offline optimum", belady)):
        begin(name)
        hits = bound([each.tolist() for each in unique], config.slots)
        records.append({"policy": name, "hit_rate": hits / rows, "lookup_hit_rate": None,
                        "filled": rows - hits, "written_back": None, "bypassed": 0,
                        "bypassed_share": 0.0})
    window = offsets.past + 1 + offsets.future
    return {"slots": config.slots, "batches": len(batches), "lookups": lookups,
            "unique": rows, "window_batches": window,
            "window_rows": _largest_union(unique, window), "policies": records}


def _by_first_lookup(keys):
    rows, first = np.unique(keys, return_index=True)
    return rows[np.argsort(first)]


def _counts(keys, learning):
    """What each lookup's row was counted before its batch, and in the first `learning` ones."""
    rows, index = np.unique(np.concatenate(keys), return_inverse=True)
    counted, live, ranks = np.zeros(len(rows), np.int64), [], None
    parts = np.split(index, np.cumsum([len(each) for each in keys])[:-1])
    for number, part in enumerate(parts):
        live.append(counted[part])
        counted += np.bincount(part, minlength=len(rows))
        if number + 1 == learning:
            ranks = counted.copy()
    return live, [ranks[part] for part in parts]


def _run(planner, batches, counts, offsets, advance, rows, lookups):
    hits = hit_lookups = filled = written = bypassed = 0
    for number, (table, row) in enumerate(batches):
        coming = number + offsets.future
        for marked in range(number if number == 0 else coming, coming + 1):
            if marked < len(batches):
                planner.mark(marked, *batches[marked])
        if number > offsets.past:
            planner.retire(number - offsets.past - 1)
        whole = np.zeros(len(table), np.int64)
        plan = planner.plan(number, table, row, whole, whole, counts[number])
        hits, bypassed = hits + plan.hits, bypassed + len(plan.bypassed)
        hit_lookups += plan.hit_lookups
        filled += len(plan.fills)
        written += sum(dirty for *_, dirty in plan.evictions)
        advance()
    return {"hit_rate": hits / rows, "lookup_hit_rate": hit_lookups / lookups, "filled": filled,
            "written_back": written, "bypassed": bypassed, "bypassed_share": bypassed / rows}


def _largest_union(unique, window):
    """Most rows that so many batches, one after the other, need together."""
    most, recent = 0, deque(maxlen=window)
    for rows in unique:
        recent.append(rows)
        most = max(most, len(np.unique(np.concatenate(recent))))
    return most
