"""The most accessed rows of several tables, from what a user knows of each table."""

import numpy as np

from ...operands.results import RowList


def most_counted(counts, limit):
    """Rows with the highest counts, at least 1: RowList of at most `limit`.

    On a tie the first table and the lowest row win.

    Parameters
    ----------
    counts : sequence of (int, integers [rows])
        Number of a table, and how often each of its rows is accessed.
    limit : int
    """
    table = np.concatenate([np.full(len(each), number) for number, each in counts])
    row = np.concatenate([np.arange(len(each)) for _, each in counts])
    counted = np.concatenate([each for _, each in counts])
    most = np.argsort(-counted, kind="stable")[:min(limit, np.count_nonzero(counted > 0))]
    return RowList(table[most].astype(np.uint32), row[most].astype(np.uint32))


def interleaved(ranked, limit):
    """The first row of each table, then the second of each, ...: RowList of at most `limit`.

    Parameters
    ----------
    ranked : sequence of (int, integers [n])
        Number of a table, and rows of it, the most accessed first.
    limit : int
    """
    rank = np.concatenate([np.arange(len(rows)) for _, rows in ranked])
    table = np.concatenate([np.full(len(rows), number) for number, rows in ranked])
    row = np.concatenate([rows for _, rows in ranked])
    first = np.argsort(rank, kind="stable")[:limit]
    return RowList(table[first].astype(np.uint32), row[first].astype(np.uint32))
