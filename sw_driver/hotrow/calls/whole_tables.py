"""Small tables of which every row is hot, where that makes more samples popular.

A sample is popular if all of its rows are hot. The last rows of a small table, although rarely
accessed, can make more samples popular than more frequent rows of a large table.

Source: Hotline and FAE rank hot rows over all tables and include small tables whole.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..operands.results import HotRows


def with_whole_tables(hot: HotRows, k: int, rows: ArrayLike, lookups: ArrayLike) -> HotRows:
    """Replace the least accessed hot rows by the other rows of small tables.

    The tables are tried in order of their missing rows. A table is completed if that raises the
    probability that a sample is popular, estimated with independent lookups: the product, over all
    lookups, of the share of the table's lookups that hit.

    Parameters
    ----------
    hot : HotRows
        The most accessed rows, by count descending.
    k : int
        Largest number of rows in the result.
    rows, lookups : number[tables]
        By the number of the table: its rows, 0 where there is no table, and the lookups that the
        counts of `hot` are a part of.

    Returns
    -------
    HotRows
        At most `k` rows by count descending; added rows have count 0.
    """
    rows, lookups = np.asarray(rows, np.int64), np.asarray(lookups, np.float64)
    resident = np.bincount(hot.table, minlength=len(rows))
    used = np.flatnonzero(lookups)
    candidates = used[(resident[used] < rows[used]) & (rows[used] <= k)]
    whole = np.zeros(len(rows), bool)  # tables that are completed
    best = _popularity(hot, k, whole, rows, lookups)
    for table in candidates[np.argsort((rows - resident)[candidates], kind="stable")]:
        tried = whole.copy()
        tried[table] = True
        if rows[tried].sum() > k:
            continue
        popularity = _popularity(hot, k, tried, rows, lookups)
        if popularity > best:
            whole, best = tried, popularity
    kept = _kept(hot, k, whole, rows)
    added = [(table, np.setdiff1d(np.arange(rows[table], dtype=np.uint32),
                                  hot.row[hot.table == table]))
             for table in candidates[whole[candidates]]]
    tables = [np.full(len(missing), table, np.uint32) for table, missing in added]
    return HotRows(
        np.concatenate([hot.table[kept], *tables]),
        np.concatenate([hot.row[kept], *(missing for _, missing in added)]),
        np.concatenate([hot.count[kept], *(np.zeros(len(missing), np.uint32)
                                           for _, missing in added)]),
        cycles=hot.cycles)


def _kept(hot: HotRows, k: int, whole: NDArray[np.bool_],
          rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which hot rows stay: every row of a `whole` table, and the first others that fit."""
    of_whole = whole[hot.table]
    return of_whole | (np.cumsum(~of_whole) <= k - int(rows[whole].sum()))


def _popularity(hot: HotRows, k: int, whole: NDArray[np.bool_], rows: NDArray[np.int64],
                lookups: NDArray[np.float64]) -> float:
    """Logarithm of the probability that a sample is popular, times a constant."""
    kept = _kept(hot, k, whole, rows)
    hits = np.bincount(hot.table[kept], hot.count[kept], len(rows))
    all_hit = whole | (np.bincount(hot.table[kept], minlength=len(rows)) == rows)
    share = np.where(all_hit, 1, np.maximum(hits, 0.5) / np.maximum(lookups, 1))
    return float(lookups @ np.log(np.minimum(share, 1)))
