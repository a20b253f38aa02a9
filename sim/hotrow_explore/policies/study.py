"""Runs the planner's model over the batches of a trace, policy by policy."""

from collections import deque
from dataclasses import replace

import numpy as np
from hotrow_rtl.config import Config
from hotrow_sim.golden.lookup.counters import pack_key, unpack_key
from hotrow_sim.golden.lookup.planner import Planner
from hotrow_sim.golden.training_pipeline import StageOffsets

from .bounds import belady, least_recent
from .next_use import NextUse

LEARNING_SHARE = 0.2  # of the batches, at least one: what the ranks of `freq` are learned on
KNOWN = 16  # batches ahead that `next` looks
# Name in the table, policy, admission by frequency.
RUNS = {"lru": ("lru", False), "rrip": ("rrip", False), "lfu": ("lfu", False),
        "lfu, admission": ("lfu", True), "freq": ("freq", False), "freq, admission": ("freq", True),
        "freq, warm-up": ("freq", True), "next": ("lru", False)}
BOUNDS = {"lru, one set": least_recent, "offline optimum": belady}


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


def study(config: Config, batches, offsets: StageOffsets, begin, only=tuple(RUNS), known=KNOWN,
          warm_share=1.0) -> dict:
    """Compare all policies.

    Parameters
    ----------
    config : Config
    batches : list of (int[n], int[n])
        Table and row of each lookup.
    offsets : StageOffsets
        Of the stages, from which the window comes.
    begin : callable
        Takes what is done next and of how many parts it is, and gives what to call as each is done.
    only : sequence of str
        Names of `RUNS`.
    known : int
        Batches ahead that `next` looks.
    warm_share : float
        Of the slots, which `freq, warm-up` fills with the rows of the highest ranks once those are
        learned.

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
    """What each lookup's row was counted before its batch, and in the first `learning` ones; and
    the rows of those by falling count, with it."""
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
        zip(rows[order].tolist(), ranks[order].tolist()))


def _run(planner, batches, counts, offsets, advance, warm_up):
    """Hits of each batch, and what else adds up. Of `warm_up`, the batch before which slots are
    freed and given to those rows, if there are any."""
    found = dict.fromkeys(("hit_lookups", "filled", "written_back", "bypassed"), 0)
    hits, (warmed, rows) = [], warm_up
    for number, (table, row) in enumerate(batches):
        if number == warmed and rows is not None:
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
    """Free every slot, then give those to rows, (key, count) each, all before a batch; rows that
    had to be written back."""
    dirty = len(planner.state.flush())
    planner.clear()
    planner.state.planned = planner.state.retired = number - 1
    keys, ranks = np.array(rows, np.uint64).reshape(-1, 2).T
    table, row = unpack_key(planner.config, keys)
    whole = np.zeros(len(keys), np.int64)
    for key, start, rank in zip(keys.tolist(), planner.starts(table, row, whole, whole),
                                ranks.tolist()):
        planner.state.install(key, start, rank)
    return dirty


def _largest_union(unique, window):
    """Most rows that so many batches, one after the other, need together."""
    most, recent = 0, deque(maxlen=window)
    for rows in unique:
        recent.append(rows)
        most = max(most, len(set().union(*recent)))
    return most
