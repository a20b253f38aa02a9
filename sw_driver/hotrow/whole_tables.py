"""Small tables wholly hot, where that makes more samples popular.

A sample is popular if all of its rows are hot. So the last rows of a small table, each seldom asked
for, may be worth more than rows of a large one that are asked for more often.

Source: the hot rows of Hotline and of FAE are ranked over all tables, small tables whole.
"""

import numpy as np

from .results import HotRows


def with_whole_tables(hot: HotRows, k, rows, lookups) -> HotRows:
    """Hot rows in which small tables are whole as long as that pays.

    Tables are tried by the number of rows that they lack. What is compared is the chance that a
    sample is popular, as if its lookups hit independently: the product, over all lookups, of the
    share of its table's lookups that hit.

    Parameters
    ----------
    hot : HotRows
        The most accessed rows, the most accessed first.
    k : int
        Rows that there is room for.
    rows, lookups : number[tables]
        Rows of each table by its number, 0 where there is none; and how many lookups of it the
        counts in `hot` are of.

    Returns
    -------
    HotRows
        At most `k`, by count descending; rows of whole tables that were not in `hot` count zero.
    """
    rows, lookups = np.asarray(rows, np.int64), np.asarray(lookups, np.float64)
    resident = np.bincount(hot.table, minlength=len(rows))
    used = np.flatnonzero(lookups)
    candidates = used[(resident[used] < rows[used]) & (rows[used] <= k)]
    whole = np.zeros(len(rows), bool)  # completed
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


def _kept(hot, k, whole, rows):
    """Which of the hot rows stay: those of `whole` tables, and of the others the first that fit."""
    of_whole = whole[hot.table]
    return of_whole | (np.cumsum(~of_whole) <= k - rows[whole].sum())


def _popularity(hot, k, whole, rows, lookups):
    """Logarithm of the chance that a sample is popular, up to a factor."""
    kept = _kept(hot, k, whole, rows)
    hits = np.bincount(hot.table[kept], hot.count[kept], len(rows))
    all_hit = whole | (np.bincount(hot.table[kept], minlength=len(rows)) == rows)
    share = np.where(all_hit, 1, np.maximum(hits, 0.5) / np.maximum(lookups, 1))
    return float(lookups @ np.log(np.minimum(share, 1)))
