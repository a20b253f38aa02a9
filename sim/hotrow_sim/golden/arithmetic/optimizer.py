"""Golden model of the row update: one step of SGD or row-wise Adagrad, with every rounding.

Numbers are bits, as in ``golden.float``.
"""

import numpy as np

from ..float import divide, fused_multiply_add, narrow, square_root, widen
from .pooling import ONE, pairwise_sum

MINUS_ZERO = SIGN = np.uint32(0x80000000)


def sgd(rows, gradients, lr, kind="fp32"):
    """w = fma(-lr, g, w), rounded to the element type.

    Parameters
    ----------
    rows : uint32[n, elements], or uint16 for 16-bit types
    gradients : uint32[n, elements]
        fp32, the `bag_sums` of each row's gradients.
    lr : uint32
        fp32.
    kind : str
        "fp32", "fp16" or "bf16".

    Returns
    -------
    Shape and dtype of `rows`.
    """
    factor = np.full_like(gradients, np.uint32(lr) ^ SIGN)
    return narrow(fused_multiply_add(factor, gradients, widen(rows, kind)), kind)


def rowwise_adagrad(rows, gradients, states, lr, eps, kind="fp32"):
    """s = s + q / D, w = fma(-(lr / (sqrt(s) + eps)), g, w), each operation rounded.

    q is the `pairwise_sum` of the rounded squares of the D elements of g.

    Parameters
    ----------
    rows, gradients, kind
        As for `sgd`.
    states : uint32[n]
        fp32.
    lr, eps : uint32
        fp32.

    Returns
    -------
    rows : shape and dtype of `rows`
    states : uint32[n]
    """
    count, elements = gradients.shape
    squares = fused_multiply_add(gradients, gradients, np.full_like(gradients, MINUS_ZERO))
    mean = divide(pairwise_sum(squares.T), np.full(count, np.float32(elements).view(np.uint32)))
    ones = np.full(count, ONE)
    states = fused_multiply_add(ones, states, mean)
    bound = fused_multiply_add(ones, square_root(states), np.full(count, np.uint32(eps)))
    factor = divide(np.full(count, np.uint32(lr)), bound) ^ SIGN
    wide = fused_multiply_add(
        np.repeat(factor[:, None], elements, axis=1), gradients, widen(rows, kind))
    return narrow(wide, kind), states
