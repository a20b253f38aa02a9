"""Hit rates, counted on the accesses of a trace, or on accesses drawn from a workload's shape.

Generated accesses are ranks of a power law. Tables are independent, so one table of each kind
(rows, lookups) is drawn and its counts multiplied; of more than `DRAWN` accesses a batch the
expected counts are computed, as drawing takes minutes. The hot set is the exact top of the law over
all tables. Of a trace the golden model of the access counters learns the hot set on the first
batches, which are not scored. If all rows fit, all are hot. The golden model of the splitter
determines hits and misses.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from hotrow.traces.synthetic import ranks
from hotrow_rtl.config import PRESETS
from hotrow_rtl.contract.encoding import NO_SLOT
from hotrow_sim.golden.lookup.counters import Counters
from hotrow_sim.golden.lookup.reader import Lookups
from hotrow_sim.golden.lookup.splitter import split

SCORED = 3  # batches that are scored
GENERATED_LEARNING = 50  # batches of a generated trace, which has no end
DRAWN = 2**20  # most accesses of a batch to a table that are drawn
LEARNING_LIMIT = 200  # most batches of a trace to learn on
COUNTER = PRESETS["alveo-u55c"]


@dataclass(frozen=True)
class Locality:
    """Means over the scored batches.

    Attributes
    ----------
    lookups, unique : float
        Lookups of a batch, and the distinct rows among them in tables that are not wholly hot.
    hit_rate : float
        Lookups whose row is hot.
    popular : float
        Samples with hot rows only.
    misses : float
        Distinct rows of a batch that are not hot.
    fills : float
        Distinct rows that are neither hot nor used by the batches of the preceding window.
    """

    lookups: float
    unique: float
    hit_rate: float
    popular: float
    misses: float
    fills: float


@lru_cache(maxsize=4096)
def count(workload, hot_rows, window=1, whole=frozenset()) -> Locality:
    """Count with the `hot_rows` most accessed rows hot and the rows of `window` batches held.

    The tables whose numbers are in `whole` are hot as well.
    """
    others = sum(rows for at, rows in enumerate(workload.rows) if at not in whole)
    hot_rows = int(max(0, min(hot_rows, others)))
    if workload.trace is not None:
        return _of_trace(workload.trace, workload.batch, hot_rows, window, whole)
    kinds = Counter((rows, max(1, round(n)), at in whole) for at, (rows, n) in enumerate(
        zip(workload.rows, workload.lookups, strict=True)))
    return _of_law(tuple(kinds.items()), workload.batch, workload.slope, hot_rows, window)


@lru_cache(maxsize=512)
def _of_law(kinds, batch, slope, hot_rows, window):
    ranked = [kind for kind, _ in kinds if not kind[2]]
    hot = dict(zip(ranked, hot_ranks(
        [rows for rows, _, _ in ranked], [n for _, n, _ in ranked],
        [many for kind, many in kinds if not kind[2]], slope, hot_rows) if ranked else (),
        strict=True))
    rng = np.random.default_rng([0, batch, window])
    sums, popular = np.zeros(5), 1.0
    for (rows, lookups, whole), many in kinds:
        top = rows if whole else hot[rows, lookups, whole]
        if batch * lookups > DRAWN:
            figures, share = _expected(rows, lookups, batch, slope, top, whole, window)
        else:
            sample = np.repeat(np.arange(batch), lookups)
            drawn = [ranks(rng.random(batch * lookups), rows, slope)
                     for _ in range(window + SCORED)]
            figures, share = _score(drawn, [sample] * len(drawn), batch, lambda row: row < top,
                                    lambda row: np.full(len(row), whole), window)
        sums += many * figures
        popular *= share**many
    return _locality(sums, popular)


def _expected(rows, lookups, batch, slope, top, whole, window):
    """What `_score` counts, expected of independent accesses to one table; ranks of nearly equal
    frequency are taken together."""
    edges = np.unique(np.r_[np.arange(min(rows, 1000)), top, rows,
                            np.geomspace(1, rows, 4000).astype(int)])
    width, accesses = np.diff(edges), batch * lookups
    weight = width * ((edges[:-1] + edges[1:] + 1) / 2) ** -slope
    share = weight / weight.sum()
    absent = np.exp(accesses * np.log1p(-np.minimum(share / width, 1 - 1e-12)))
    distinct, cold = width * (1 - absent), edges[:-1] >= top
    hits = share[~cold].sum()
    return np.array([accesses, 0 if whole else distinct.sum(), accesses * hits,
                     distinct[cold].sum(), (distinct * absent**window)[cold].sum()]), hits**lookups


@lru_cache(maxsize=64)
def _of_trace(trace, batch, hot_rows, window, whole):
    total = trace.batch_count(batch) or 20 * GENERATED_LEARNING
    learning = max(1, min(LEARNING_LIMIT, total // 20))
    first = np.r_[0, np.cumsum(trace.cardinalities)]
    in_whole = np.isin(np.arange(len(trace.cardinalities)), list(whole))

    def is_whole(row):
        return in_whole[np.searchsorted(first, row, side="right") - 1]

    if hot_rows == trace.rows:
        hot = np.arange(hot_rows)
    else:
        learned = _learned(trace, batch, learning) if hot_rows else np.array([], np.int64)
        hot = np.sort(learned[~is_whole(learned)][:hot_rows])
    at = np.unique(np.linspace(min(learning + window, total - 1), total - 1, SCORED).astype(int))
    sums, popular = np.zeros(5), 0.0
    for last in at:
        drawn, samples = [], []
        for number in range(max(0, last - window), last + 1):
            read = trace.batch(number, batch)
            drawn.append(_flat(read, first))
            samples.append(np.repeat(np.arange(len(read)),
                                     read.bag_lengths.reshape(len(read), -1).sum(axis=1)))
        figures, share = _score(drawn, samples, len(read), lambda row: _member(row, hot), is_whole,
                                len(drawn) - 1)
        sums, popular = sums + figures, popular + share
    return _locality(sums / len(at), popular / len(at))


@lru_cache(maxsize=8)
def _learned(trace, batch, learning):
    """Flat rows by falling count of the golden counters."""
    counters, first = Counters(COUNTER), np.r_[0, np.cumsum(trace.cardinalities)]
    for number in range(learning):
        read = trace.batch(number, batch)
        beat = np.arange(read.ids.size) // COUNTER.lanes
        counters.observe(read.lookup_columns, read.ids.ravel(), beat)
    table, row, times = counters.harvest(COUNTER.counter_entries, 1)
    return (first[table] + row)[np.argsort(-times.astype(np.int64), kind="stable")]


def _flat(samples, first):
    return first[samples.lookup_columns] + samples.ids.ravel().astype(np.int64)


def _member(row, members):
    if not len(members):
        return np.zeros(len(row), bool)
    at = np.searchsorted(members, row).clip(max=len(members) - 1)
    return members[at] == row


def _score(drawn, samples, batch, is_hot, is_whole, window):
    """Mean (lookups, unique, hits, misses, fills) and popular share of the batches after
    `window`."""
    sums, popular = np.zeros(5), 0.0
    distinct = [np.unique(rows[~is_whole(rows)]) for rows in drawn]
    scored = range(window, len(drawn))
    for number in scored:
        rows = drawn[number]
        hot = is_hot(rows) | is_whole(rows)
        lookups = Lookups(np.zeros(len(rows), np.uint32), rows.astype(np.uint32),
                          samples[number], batch)
        found = np.where(hot, 0, NO_SLOT).astype(np.uint32)
        beats = np.arange(len(rows)) // COUNTER.lanes
        result = split(COUNTER, lookups, found, np.zeros(len(rows), bool), beats)
        missing = np.unique(result.miss_row.astype(np.int64))
        held = np.zeros(len(missing), bool)
        for before in distinct[number - window:number]:
            held |= _member(missing, before)
        sums += len(rows), len(distinct[number]), hot.sum(), len(missing), (~held).sum()
        popular += len(result.popular) / batch
    return sums / len(scored), popular / len(scored)


def _locality(sums, popular):
    lookups, unique, hits, misses, fills = map(float, sums)
    return Locality(lookups, unique, hits / lookups, float(popular), misses, fills)


def hot_ranks(rows, lookups, many, slope, budget):
    """Number of ranks of each kind of table among the `budget` most accessed rows.

    Rank r of a table with n lookups has the frequency n (r + 1)^-slope / sum of the powers.
    Bisection finds the threshold of frequency at which the ranks above fill the budget.
    """
    rows, many = np.asarray(rows, float), np.asarray(many, float)
    if budget >= (rows * many).sum():
        return rows.astype(int)
    slope = max(slope, 1e-3)
    weight = np.asarray(lookups) / np.array([_power_sum(size, slope) for size in rows])
    low, high = -80.0, 20.0  # log of the threshold
    for _ in range(100):
        middle = (low + high) / 2
        above = np.minimum(rows, np.exp(np.minimum((np.log(weight) - middle) / slope, 60)))
        low, high = (middle, high) if (above * many).sum() > budget else (low, middle)
    return np.minimum(rows, np.exp(np.minimum((np.log(weight) - high) / slope, 60))).astype(int)


def _power_sum(rows, slope):
    head = np.sum(np.arange(1, min(rows, 1000) + 1) ** -slope)
    if rows <= 1000:
        return head
    if abs(slope - 1) < 1e-6:
        return head + np.log(rows / 1000)
    return head + (rows ** (1 - slope) - 1000 ** (1 - slope)) / (1 - slope)
