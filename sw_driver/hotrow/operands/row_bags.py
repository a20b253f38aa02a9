"""Bags of listed rows, and lists in which rows occur more than once."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..contract.errors import BatchError
from ..memory.buffer import as_array
from .integers import grouped, vector
from .results import RowList

LONGEST = 0xFFFF  # rows of a bag, gradients of a row


def bag_lengths(lengths: ArrayLike | None, offsets: ArrayLike | None,
                count: int) -> NDArray[np.uint16]:
    """The rows of each bag, uint16[bags].

    Parameters
    ----------
    lengths, offsets : integers [bags] or None
        One of them: the rows of each bag, or the place in the list where each bag begins, as in
        PyTorch's `embedding_bag`.
    count : int
        Rows in the list.

    Raises
    ------
    BatchError
    """
    if (lengths is None) == (offsets is None):
        raise BatchError("pool expects either lengths, the rows of each bag, or offsets, the place "
                         "where each bag begins")
    if offsets is not None:
        starts = vector(offsets, "offsets").astype(np.int64)
        ends = np.r_[starts[1:], count]
        if (count and not len(starts)) or starts[:1].any():
            raise BatchError(f"offsets must begin with 0, the first row of the first bag, not with "
                             f"{starts[0] if len(starts) else 'nothing'}")
        wrong = np.flatnonzero(ends < starts)
        if wrong.size:
            at = int(wrong[0])
            raise BatchError(f"offsets must not decrease, nor exceed the {count} rows: bag {at} "
                             f"would be rows {starts[at]} to {ends[at]}", position=at)
        found: NDArray[np.int64] = ends - starts
    else:
        found = vector(lengths, "lengths").astype(np.int64)
        if (found < 0).any():
            at = int(np.flatnonzero(found < 0)[0])
            raise BatchError(f"bag {at} cannot have {found[at]} rows", position=at)
        if found.sum() != count:
            raise BatchError(f"the lengths add up to {found.sum()}, but {count} rows are listed")
    if len(found) and found.max() > LONGEST:
        at = int(found.argmax())
        raise BatchError(f"bag {at} has {found[at]} rows: a bag has at most {LONGEST}", position=at)
    return found.astype(np.uint16)


def gradient_counts(lengths: ArrayLike, count: int) -> NDArray[np.uint16]:
    """`lengths`, the gradients of each of `count` rows, as uint16[count].

    Raises
    ------
    BatchError
    """
    found = vector(lengths, "lengths")
    if len(found) != count:
        raise BatchError(f"{len(found)} lengths for {count} rows: expected one for each")
    if count and not 1 <= found.min() <= found.max() <= LONGEST:
        at = int(np.flatnonzero((found < 1) | (found > LONGEST))[0])
        raise BatchError(f"row {at} of the list cannot have {found[at]} gradients: one update "
                         f"takes 1 to {LONGEST} of a row", position=at)
    return found.astype(np.uint16, copy=False)


def row_weights(weights: ArrayLike | None, count: int) -> NDArray[np.float32] | None:
    """`weights` as float32[count], or None.

    Raises
    ------
    BatchError
    """
    if weights is None:
        return None
    array = as_array(weights, "weights")
    if array.shape != (count,) or array.dtype.kind != "f":
        raise BatchError(f"weights must be floating-point numbers, one for each of {count} rows; "
                         f"got {array.dtype} of shape {array.shape}")
    return array.astype(np.float32, copy=False)


def distinct_rows(rows: RowList) -> tuple[
        NDArray[np.int64], NDArray[np.int64], NDArray[np.uint16]]:
    """Group a list by row.

    Returns
    -------
    order : int64[n]
        Positions in the list, grouped by row, ascending within a row.
    first : int64[m]
        Position of the first appearance of each distinct row, in the order of the groups.
    counts : uint16[m]
        Appearances of each.

    Raises
    ------
    BatchError
        If a row appears more than 65535 times.
    """
    order, begins = grouped(rows.keys)
    counts = np.diff(np.r_[begins, len(rows)])
    if counts.max() > LONGEST:
        at = int(order[begins[counts.argmax()]])
        raise BatchError(
            f"row {rows.row[at]} of table {rows.table[at]} is listed {counts.max()} times (first "
            f"at position {at}): one update takes at most {LONGEST} gradients of a row",
            position=at, table=int(rows.table[at]), row=int(rows.row[at]))
    return order, order[begins], counts.astype(np.uint16)
