"""Grouping consecutive rows of a click log into multi-hot samples."""

import numpy as np

from .trace import TraceError

LONGEST_BAG = np.iinfo(np.uint16).max


def group(key, ids, dense, label):
    """Combine each run of rows with the same key into one sample.

    A column's bag holds the distinct ids of the run in order of first appearance: a value that the
    whole run shares (the customer of an invoice) is looked up once. Dense features are the mean
    over the run; the label is 1 if the label of any row is 1.

    Parameters
    ----------
    key : array[N]
        The bag column.
    ids : uint32[N, T]
    dense : float32[N, D]
    label : float32[N] or None

    Returns
    -------
    values : uint32[n]
        Sample after sample, column after column.
    lengths : uint16[S, T]
    dense : float32[S, D]
    label : float32[S] or None
    """
    starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    rows = np.diff(np.r_[starts, len(key)])
    sample = np.repeat(np.arange(len(starts)), rows)
    columns = ids.shape[1]

    bag = (sample[:, None] * columns + np.arange(columns)).ravel()
    values = ids.ravel()
    order = np.lexsort((np.arange(len(bag)), values, bag))
    repeated = np.zeros(len(bag), bool)
    one, following = order[:-1], order[1:]
    repeated[following] = (bag[one] == bag[following]) & (values[one] == values[following])
    kept = np.flatnonzero(~repeated)
    kept = kept[np.argsort(bag[kept], kind="stable")]

    lengths = np.bincount(bag[kept], minlength=len(starts) * columns)
    if lengths.max() > LONGEST_BAG:
        at = int(lengths.argmax()) // columns
        raise TraceError(f"a bag holds {lengths.max():,} ids of one column (value {key[starts[at]]}"
                         f" of the bag column): the device serves at most {LONGEST_BAG:,}")
    dense = np.add.reduceat(dense, starts, axis=0, dtype=np.float64) / rows[:, None]
    return (
        values[kept],
        lengths.reshape(-1, columns).astype(np.uint16),
        dense.astype(np.float32),
        None if label is None else np.maximum.reduceat(label, starts),
    )
