"""Golden model of pooling: the sum of each bag, in the order of addition of the hardware.

Numbers are bits, as in ``golden.float``.
"""

import numpy as np

from ..float import divide, fused_multiply_add, narrow, widen

ONE = np.uint32(0x3F800000)
MOST_PARTIALS = 16


def partial_count(elements):
    """Partial sums of a bag: 1024 bytes of fp32 over the bytes of a row, rounded up to a power of
    two from 1 to 16."""
    needed, count = -(-1024 // (4 * elements)), 1
    while count < min(needed, MOST_PARTIALS):
        count *= 2
    return count


def pairwise_sum(rows):
    """Add neighbours 0 and 1, 2 and 3, ..., then the sums in the same way, down to one sum.

    Parameters
    ----------
    rows : uint32[m, ...]
        fp32, m at least 1. A last row without a neighbour takes part in the next round.

    Returns
    -------
    uint32[...]
    """
    while len(rows) > 1:
        even, odd = rows[:len(rows) // 2 * 2:2], rows[1::2]
        sums = fused_multiply_add(np.full_like(even, ONE), even, odd)
        rows = np.concatenate([sums, rows[len(rows) // 2 * 2:]])
    return rows[0]


def bag_sum(rows, weights=None):
    """The sum of one bag of rows, or of the gradients of one row, in fp32.

    Row j is added to partial sum j mod p, in order, by fma(weight, row, partial), starting from +0.
    `pairwise_sum` then adds the partial sums that have a row.

    Parameters
    ----------
    rows : uint32[n, ..., elements]
        fp32. Axes between rows and elements are bags of equal length.
    weights : uint32[n, ...], optional
        fp32, default 1.0.

    Returns
    -------
    uint32[..., elements]
        +0 for an empty bag.
    """
    count, *others, elements = rows.shape
    if not count:
        return np.zeros((*others, elements), np.uint32)
    weights = np.full((count, *others), ONE) if weights is None else weights
    partials = min(count, partial_count(elements))
    sums = np.zeros((partials, *others, elements), np.uint32)
    for first in range(0, count, partials):
        chosen = rows[first:first + partials]
        weight = np.repeat(weights[first:first + partials, ..., None], elements, axis=-1)
        sums[:len(chosen)] = fused_multiply_add(weight, chosen, sums[:len(chosen)])
    return pairwise_sum(sums)


def bag_sums(rows, lengths, weights=None):
    """The `bag_sum` of each bag, uint32[bags, elements]; the bags are consecutive in `rows`."""
    lengths = np.asarray(lengths, np.int64)
    weights = np.full(len(rows), ONE) if weights is None else weights
    first, sums = np.cumsum(lengths) - lengths, np.zeros((len(lengths), rows.shape[1]), np.uint32)
    for length in np.unique(lengths):
        alike = np.flatnonzero(lengths == length)
        chosen = first[alike] + np.arange(length)[:, None]
        sums[alike] = bag_sum(rows[chosen], weights[chosen])
    return sums


def pool(rows, lengths, kind="fp32", weights=None, mean=False):
    """Pool bags of rows.

    Parameters
    ----------
    rows : uint32[n, elements], or uint16 for 16-bit types
        Of all bags, in order.
    lengths : int[bags]
        Rows of each bag.
    kind : str
        "fp32", "fp16" or "bf16".
    weights : uint32[n], optional
        fp32, default 1.0.
    mean : bool
        Divide the sum of two or more rows by their number.

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
