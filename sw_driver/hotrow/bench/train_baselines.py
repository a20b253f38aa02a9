"""What simpler schemes would do with the same batches, counted and not timed."""

from dataclasses import dataclass

import numpy as np


def ranked_rows(tables, batches, count):
    """The rows that batches look up most, over all tables: flat rows int64[<= count].

    Of those looked up as often, the one of the lowest number comes first.
    """
    rows, lookups = np.unique(np.concatenate([tables.flat_rows(each).numpy() for each in batches]),
                              return_counts=True)
    return rows[np.argsort(-lookups, kind="stable")[:count]]


def filled(tables, ranked, count):
    """Ranked rows, and behind them others until there are `count`: flat rows int64[count].

    The others are spread over the tables by their size.
    """
    others = np.concatenate([np.arange(rows) + first for rows, first in zip(
        tables.cardinalities, tables.first, strict=True)])
    others = others[~np.isin(others, ranked, kind="sort")]
    missing = count - len(ranked)
    if missing > len(others):
        raise ValueError(f"{count} rows of {len(others) + len(ranked)} cannot be hot")
    return np.concatenate((ranked, others[np.linspace(
        0, len(others) - 1, max(0, missing)).astype(np.int64)]))


@dataclass(frozen=True)
class Counted:
    """What batches meet in a set of hot rows: `lookups`, the `hits` among them, `samples`, those
    whose rows are all hot (`popular`) with their lookups (`popular_lookups`), and rows that are
    not hot, each once a batch (`missed`)."""

    lookups: int
    hits: int
    samples: int
    popular: int
    popular_lookups: int
    missed: int


def count(tables, hot, batches) -> Counted:
    """Count batches, a list of Samples, against hot flat rows int64[h]."""
    hot, total = np.sort(hot), np.zeros(6, np.int64)
    for samples in batches:
        rows = tables.flat_rows(samples).numpy()
        at = np.searchsorted(hot, rows)
        here = hot[np.minimum(at, len(hot) - 1)] == rows
        sample = np.repeat(np.arange(len(samples)), samples.bag_lengths.reshape(
            len(samples), -1).sum(axis=1))
        popular = np.bincount(sample[~here], minlength=len(samples)) == 0
        total += (len(rows), here.sum(), len(samples), popular.sum(), popular[sample].sum(),
                  len(np.unique(rows[~here])))
    return Counted(*map(int, total))


def static_cache(tables, found, row_bytes) -> dict:
    """A cache of rows chosen beforehand: every other row is fetched for its batch and goes back.

    Parameters
    ----------
    tables : EmbeddingTables
    found : Counted
    row_bytes : int
        With state.

    Returns
    -------
    dict
        Fields of a contender.
    """
    return {"name": "static top-K", "kind": "counted", "hit_rate": found.hits / found.lookups,
            "popular_fraction": found.popular / found.samples, "rows_moved": 2 * found.missed,
            "link_bytes": 2 * found.missed * row_bytes}


def fae(tables, found, row_bytes, hot_rows) -> dict:
    """FAE (VLDB 2022, arXiv 2103.00686): samples all of whose rows are hot train in batches of
    their own at the trainer, all others with embeddings of the host.

    Of the others pooled rows and their gradients cross, 4 * dim bytes a bag each way; the hot rows
    cross once each way, between the two kinds of batches. Arguments and result as of
    `static_cache`.
    """
    bags = (found.samples - found.popular) * tables.count
    return {"name": "FAE", "kind": "counted",
            "hit_rate": found.popular_lookups / found.lookups,
            "popular_fraction": found.popular / found.samples, "rows_moved": 2 * hot_rows,
            "link_bytes": 2 * hot_rows * row_bytes + 2 * bags * 4 * tables.dim}
