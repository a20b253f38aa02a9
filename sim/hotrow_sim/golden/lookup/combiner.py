"""Golden model of the combiner: which lookup of a row stands for which others near it."""

import numpy as np


def owners(key, beat, window):
    """The lookup that each lookup joins: itself, or an earlier one of its row.

    The first lookup of a row is an owner; later ones join it up to `window` beats after its
    own; the next beyond is an owner again.

    Parameters
    ----------
    key : uint64[n]
        Packed (table, row) of the lookups of one batch that are not refused, in order.
    beat : int64[n]
        Number of the beat that carries each.

    window : int
        `window_beats` of the configuration.

    Returns
    -------
    int64[n]
    """
    n = len(key)
    owner = np.empty(n, np.int64)
    order = np.argsort(key, kind="stable")
    beats = np.asarray(beat, np.int64)[order]
    starts = np.flatnonzero(np.r_[True, key[order][1:] != key[order][:-1]]) if n else []
    ends = np.r_[starts[1:], n] if n else []
    span = int(beats.max()) + window + 2 if n else 1
    # One number that orders by row, then by beat, so that all rows are searched at once.
    group = np.repeat(np.arange(len(starts)), np.subtract(ends, starts)) if n else []
    place = np.asarray(group, np.int64) * span + beats if n else np.empty(0, np.int64)
    first, group_end = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    slot = np.arange(len(first))
    marks = np.zeros(n, np.int64)
    while len(first):
        marks[first] = 1
        following = np.searchsorted(place, slot * span + beats[first] + window, "right")
        alive = following < group_end
        first, group_end, slot = following[alive], group_end[alive], slot[alive]
    heads = np.flatnonzero(marks)
    owner[order] = order[heads[np.cumsum(marks) - 1]] if n else owner
    return owner
