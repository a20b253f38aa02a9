"""Simpler schemes on the same batches, counted and not timed."""

from dataclasses import dataclass

import numpy as np
from hotrow.torch.training.trainer import flat_rows


def ranked_rows(tables, batches, count):
    """The rows with the most lookups, over all tables: flat rows int64[<= count].

    Ties are in ascending order.
    """
    rows, lookups = np.unique(np.concatenate([flat_rows(tables, each).numpy() for each in batches]),
                              return_counts=True)
    return rows[np.argsort(-lookups, kind="stable")[:count]]


def filled(tables, ranked, count):
    """Ranked rows, padded with others to `count`: flat rows int64[count].

    The others are spread evenly over all rows.
    """
    others = np.concatenate([np.arange(rows) + first for rows, first in zip(
        tables.cardinalities, tables.first, strict=True)])
    others = others[~np.isin(others, ranked, kind="sort")]
    missing = count - len(ranked)
    if missing > len(others):
        raise ValueError(f"expected at most {len(others) + len(ranked)} hot rows, got {count}")
    return np.concatenate((ranked, others[np.linspace(
        0, len(others) - 1, max(0, missing)).astype(np.int64)]))


@dataclass(frozen=True)
class Counted:
    """Counts of batches against a set of hot rows: `lookups`, `hits`, `samples`, samples whose
    rows are all hot (`popular`), their lookups (`popular_lookups`), and distinct cold rows per
    batch, summed (`missed`)."""

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
        rows = flat_rows(tables, samples).numpy()
        at = np.searchsorted(hot, rows)
        here = hot[np.minimum(at, len(hot) - 1)] == rows
        sample = np.repeat(np.arange(len(samples)), samples.bag_lengths.reshape(
            len(samples), -1).sum(axis=1))
        popular = np.bincount(sample[~here], minlength=len(samples)) == 0
        total += (len(rows), here.sum(), len(samples), popular.sum(), popular[sample].sum(),
                  len(np.unique(rows[~here])))
    return Counted(*map(int, total))


def static_cache(tables, found, row_bytes) -> dict:
    """A static cache of hot rows: cold rows are fetched for their batch and written back.

    Parameters
    ----------
    tables : EmbeddingTables
    found : Counted
    row_bytes : int
        State included.

    Returns
    -------
    dict
        Fields of a contender.
    """
    return {"name": "static top-K", "kind": "counted", "hit_rate": found.hits / found.lookups,
            "popular_fraction": found.popular / found.samples, "rows_moved": 2 * found.missed,
            "link_bytes": 2 * found.missed * row_bytes}


def fae(tables, found, row_bytes, hot_rows) -> dict:
    """FAE (VLDB 2022, arXiv 2103.00686): samples with only hot rows train in separate batches on
    the trainer, all others with embeddings on the host.

    For the others pooled rows and their gradients cross the link, 4 * dim bytes a bag each way;
    hot rows cross once each way, between the two kinds of batches. Parameters and result are
    those of `static_cache`.
    """
    bags = (found.samples - found.popular) * tables.count
    return {"name": "FAE", "kind": "counted",
            "hit_rate": found.popular_lookups / found.lookups,
            "popular_fraction": found.popular / found.samples, "rows_moved": 2 * hot_rows,
            "link_bytes": 2 * hot_rows * row_bytes + 2 * bags * 4 * tables.dim}
