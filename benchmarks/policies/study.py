"""Runs the golden planner over the batches of a trace, policy by policy."""

from collections import deque
from dataclasses import replace

import numpy as np
from hotrow_rtl.config import Config
from hotrow_sim.golden.lookup.counters import pack_key, unpack_key
from hotrow_sim.golden.lookup.planner import Planner
from hotrow_sim.golden.training_pipeline import StageOffsets

from .bounds import belady, least_recent
from .next_use import NextUse

LEARNING_SHARE = 0.2  # of the batches, at least one, to learn the ranks of `freq`
KNOWN = 16  # batches ahead that `next` looks
# Name in the table, policy, admission by frequency.
RUNS = {"lru": ("lru", False), "rrip": ("rrip", False), "lfu": ("lfu", False),
        "lfu, admission": ("lfu", True), "freq": ("freq", False), "freq, admission": ("freq", True),
        "freq, warm-up": ("freq", True), "next": ("lru", False)}
BOUNDS = {"lru, one set": least_recent, "offline optimum": belady}


def sized(config: Config, slots) -> Config:
    """The same card with another number of slots.

    Raises
    ------
    ValueError
        If `slots` is no power of two, or too small for the banks.
    """
    sets, rest = divmod(slots, config.directory_choices * config.directory_ways)
    if rest or not sets or sets & (sets - 1):
        raise ValueError(f"slots must be a power of two of at least "
                         f"{config.directory_choices * config.directory_ways * config.banks}, "
                         f"not {slots}")
    return replace(config, name=f"{config.name}-{slots}-slots", directory_sets=sets,
                   directory_partitions=min(config.directory_partitions, sets // config.banks))


def study(config: Config, batches, offsets: StageOffsets, begin, only=tuple(RUNS), known=KNOWN,
          warm_share=1.0) -> dict:
    """Compare all policies.

    Parameters
    ----------
    config : Config
    batches : list of (int[n], int[n])
        Table and row of each lookup.
    offsets : StageOffsets
        Of the stages; they determine the window.
    begin : callable
        Receives the name and number of steps of the next task, and returns a function to call
        after each step.
    only : sequence of str
        Names of `RUNS`.
    known : int
        Batches ahead that `next` looks.
    warm_share : float
        Share of the slots that `freq, warm-up` fills with the highest ranks, once learned.

    Returns
    -------
    dict
        Sizes, and a record for each policy under `policies`.
    """
    keys = [pack_key(config, table, row) for table, row in batches]
    unique = [_by_first_lookup(each).tolist() for each in keys]
    rows, lookups = sum(map(len, unique)), sum(map(len, keys))
    learning = max(1, int(LEARNING_SHARE * len(keys)))
    later = sum(map(len, unique[learning:]))
    live, ranks, ranked = _counts(keys, learning)
    records = []

    def hit_rates(hits):
        return {"hit_rate": sum(hits) / rows,
                "later_hit_rate": sum(hits[learning:]) / later if later else None}

    for name in only:
        policy, admission = RUNS[name]
        counts = {"lfu": live, "freq": ranks}.get(policy, [None] * len(keys))
        planner = Planner(config, policy, admission)
        if name == "next":
            planner.state = NextUse(config, unique, known)
        warm = ranked[:int(warm_share * config.slots)] if name == "freq, warm-up" else None
        hits, found = _run(planner, batches, counts, offsets, begin(name, len(batches)),
                           (learning, warm))
        found["lookup_hit_rate"] = found.pop("hit_lookups") / lookups
        records.append({"policy": name} | hit_rates(hits) | found | {
            "bypassed_share": found["bypassed"] / rows})
    for name, bound in BOUNDS.items():
        begin(name)
        hits = bound(unique, config.slots)
        records.append({"policy": name} | hit_rates(hits) | {
            "filled": rows - sum(hits), "written_back": None, "bypassed": 0,
            "lookup_hit_rate": None, "bypassed_share": 0.0})
    window = offsets.past + 1 + offsets.future
    return {"slots": config.slots, "batches": len(batches), "learned_batches": learning,
            "lookups": lookups, "unique": rows, "window_batches": window,
            "window_rows": _largest_union(unique, window), "policies": records}


def _by_first_lookup(keys):
    rows, first = np.unique(keys, return_index=True)
    return rows[np.argsort(first)]


def _counts(keys, learning):
    """Count of each lookup's row before its batch, and in the first `learning` batches; and the
    (row, count) of those batches by falling count."""
    rows, index = np.unique(np.concatenate(keys), return_inverse=True)
    counted, live, ranks = np.zeros(len(rows), np.int64), [], None
    parts = np.split(index, np.cumsum([len(each) for each in keys])[:-1])
    for number, part in enumerate(parts):
        live.append(counted[part])
        counted += np.bincount(part, minlength=len(rows))
        if number + 1 == learning:
            ranks = counted.copy()
    order = np.argsort(-ranks, kind="stable")[:np.count_nonzero(ranks)]
    return live, [ranks[part] for part in parts], list(
        zip(rows[order].tolist(), ranks[order].tolist(), strict=True))


def _run(planner, batches, counts, offsets, advance, warm_up):
    """Hits of each batch, and totals. `warm_up` is (batch, rows or None): before that batch the
    rows replace the contents of the slots."""
    found = dict.fromkeys(("hit_lookups", "filled", "written_back", "bypassed"), 0)
    hits, (warm_batch, rows) = [], warm_up
    for number, (table, row) in enumerate(batches):
        if number == warm_batch and rows is not None:
            found["written_back"] += _warm_up(planner, number, rows)
        coming = number + offsets.future
        for marked in range(number if number == 0 else coming, coming + 1):
            if marked < len(batches):
                planner.mark(marked, *batches[marked])
        if number > offsets.past:
            planner.retire(number - offsets.past - 1)
        whole = np.zeros(len(table), np.int64)
        plan = planner.plan(number, table, row, whole, whole, counts[number])
        hits.append(plan.hits)
        found["hit_lookups"] += plan.hit_lookups
        found["filled"] += len(plan.fills)
        found["written_back"] += sum(dirty for *_, dirty in plan.evictions)
        found["bypassed"] += len(plan.bypassed)
        advance()
    return hits, found


def _warm_up(planner, number, rows):
    """Free every slot, then install `rows`, pairs (key, count), before a batch; return the number
    of rows to write back."""
    dirty = len(planner.state.flush())
    planner.clear()
    planner.state.planned = planner.state.retired = number - 1
    keys, ranks = np.array(rows, np.uint64).reshape(-1, 2).T
    table, row = unpack_key(planner.config, keys)
    whole = np.zeros(len(keys), np.int64)
    for key, start, rank in zip(keys.tolist(), planner.starts(table, row, whole, whole),
                                ranks.tolist(), strict=True):
        planner.state.install(key, start, rank)
    return dirty


def _largest_union(unique, window):
    """Largest number of distinct rows of `window` consecutive batches."""
    most, recent = 0, deque(maxlen=window)
    for rows in unique:
        recent.append(rows)
        most = max(most, len(set().union(*recent)))
    return most
