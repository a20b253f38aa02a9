"""Golden model of the combiner: lookups of one row that are close together are combined."""

import numpy as np


def owners(key, beat, window):
    """The owner of each lookup: itself, or an earlier lookup of its row.

    The first lookup of a row is an owner. Later ones join it in the `window` beats after its own;
    the next lookup after those is an owner again.

    Parameters
    ----------
    key : uint64[n]
        Packed (table, row) of the lookups of one batch that are not refused, in order.
    beat : int64[n]
        Beat of each lookup.
    window : int
        `window_beats` of the configuration.

    Returns
    -------
    int64[n]
    """
    n = len(key)
    if not n:
        return np.empty(0, np.int64)
    order = np.argsort(key, kind="stable")
    beats = np.asarray(beat, np.int64)[order]
    first = np.flatnonzero(np.r_[True, key[order][1:] != key[order][:-1]])
    group_end = np.r_[first[1:], n]
    # One number per lookup that orders by row, then by beat: one search serves all rows.
    span = int(beats.max()) + window + 2
    rank = np.repeat(np.arange(len(first)), group_end - first) * span + beats
    group = np.arange(len(first))
    is_owner = np.zeros(n, np.int64)
    while len(first):
        is_owner[first] = 1
        following = np.searchsorted(rank, group * span + beats[first] + window, "right")
        alive = following < group_end
        first, group_end, group = following[alive], group_end[alive], group[alive]
    owner = np.empty(n, np.int64)
    owner[order] = order[np.flatnonzero(is_owner)[np.cumsum(is_owner) - 1]]
    return owner
