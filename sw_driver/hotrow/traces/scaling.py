"""Scaling of dense features."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def signed_log1p(values: ArrayLike) -> NDArray[np.float32]:
    """sign(x) * log(1 + abs(x)), and 0 for a missing value (NaN).

    Counts and prices span many powers of ten and can be negative (a refund). The logarithm limits
    outliers and keeps the sign, and needs no statistics of later data.

    Parameters
    ----------
    values : float[...]
        Finite, or NaN.

    Returns
    -------
    float32[...]
    """
    numbers: NDArray[np.float64] = np.nan_to_num(np.asarray(values, np.float64), nan=0.0)
    return (np.sign(numbers) * np.log1p(np.abs(numbers))).astype(np.float32)
