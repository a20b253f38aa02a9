"""Golden model of pooling: bags of rows to one row each, in the order of addition of the hardware.

Numbers are bits, as in ``floats``.
"""

import numpy as np

from ..float import divide, fused_multiply_add, narrow, widen

ONE, MINUS_ZERO = np.uint32(0x3F800000), np.uint32(0x80000000)
MOST_PARTIALS = 16


def partial_count(elements):
    """Partial sums of a bag: 1024 / bytes of a row as fp32, rounded up to a power of two, at least
    1 and at most 16."""
    needed, count = -(-1024 // (4 * elements)), 1
    while count < min(needed, MOST_PARTIALS):
        count *= 2
    return count


def pairwise_sum(rows):
    """Neighbours 0 and 1, 2 and 3, ... added, then so their sums, until one is left.

    Parameters
    ----------
    rows : uint32[m, ...]
        fp32, m at least 1. A last one without a neighbour waits for the next round.

    Returns
    -------
    uint32[...]
    """
    while len(rows) > 1:
        even, odd = rows[:len(rows) // 2 * 2:2], rows[1::2]
        sums = fused_multiply_add(np.full_like(even, ONE), even, odd)
        rows = np.concatenate([sums, rows[len(rows) // 2 * 2:]])
    return rows[0]


def bag_sum(rows, weights=None, plain=False):
    """The sum of one bag, in fp32.

    Row j is added to partial sum j mod p, in order, by fma(weight, row, partial); the first to +0.
    The partial sums that have a row are then added by `pairwise_sum`.

    Parameters
    ----------
    rows : uint32[n, ..., elements]
        fp32. Axes between the rows and the elements are bags of one length.
    weights : uint32[n, ...], optional
        fp32, default 1.0.
    plain : bool
        One partial sum, from the first row: to -0.

    Returns
    -------
    uint32[..., elements]
        +0 of an empty bag.
    """
    count, *others, elements = rows.shape
    if not count:
        return np.zeros((*others, elements), np.uint32)
    weights = np.full((count, *others), ONE) if weights is None else weights
    partials = 1 if plain else min(count, partial_count(elements))
    sums = np.full((partials, *others, elements), MINUS_ZERO if plain else 0, np.uint32)
    for first in range(0, count, partials):
        chosen = rows[first:first + partials]
        weight = np.repeat(weights[first:first + partials, ..., None], elements, axis=-1)
        sums[:len(chosen)] = fused_multiply_add(weight, chosen, sums[:len(chosen)])
    return pairwise_sum(sums)


def bag_sums(rows, lengths, weights=None, plain=False):
    """The `bag_sum` of bags that lie one after another in `rows`, of `lengths`; uint32[bags,
    elements]."""
    lengths = np.asarray(lengths, np.int64)
    weights = np.full(len(rows), ONE) if weights is None else weights
    first, sums = np.cumsum(lengths) - lengths, np.zeros((len(lengths), rows.shape[1]), np.uint32)
    for length in np.unique(lengths):
        alike = np.flatnonzero(lengths == length)
        chosen = first[alike] + np.arange(length)[:, None]
        sums[alike] = bag_sum(rows[chosen], weights[chosen], plain)
    return sums


def pool(rows, lengths, kind="fp32", weights=None, mean=False):
    """Pool bags of rows.

    Parameters
    ----------
    rows : uint32[n, elements], or uint16 of 16-bit types
        Of all bags, one after another.
    lengths : int[bags]
        Rows of each bag.
    kind : str
        "fp32", "fp16" or "bf16".
    weights : uint32[n], optional
        fp32, default 1.0.
    mean : bool
        Divide the sum of two rows or more by their number.

    Returns
    -------
    uint32[bags, elements], or uint16
    """
    sums = bag_sums(widen(rows, kind), lengths, weights)
    longer = np.flatnonzero(np.asarray(lengths) > 1)
    if mean and len(longer):
        numbers = np.asarray(lengths)[longer].astype(np.float32).view(np.uint32)
        sums[longer] = divide(sums[longer], np.repeat(numbers[:, None], rows.shape[1], axis=1))
    return narrow(sums, kind)
