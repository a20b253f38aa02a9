"""Sums of rows in the card's order of additions, in NumPy."""

import numpy as np


def summed(rows):
    """The sum of float32[n, D], n at least 1, without weights: float32[D]."""
    partials = min(16, 1 << max(0, (255 // rows.shape[1]).bit_length()))
    sums = [np.zeros(rows.shape[1], np.float32) for _ in rows[:partials]]
    for place, row in enumerate(rows):
        sums[place % partials] = sums[place % partials] + row
    while len(sums) > 1:
        pairs = [sums[place] + sums[place + 1] for place in range(0, len(sums) - 1, 2)]
        sums = pairs + sums[2 * len(pairs):]
    return sums[0]


def with_special_numbers(gradients, rng):
    """A copy of floats of which some are -0, and a few infinite or not a number."""
    given, drawn = gradients.copy(), rng.random(gradients.shape)
    given[drawn < 0.2] = -0.0
    given[drawn > 0.999] = np.nan
    given[(drawn > 0.998) & (drawn <= 0.999)] = np.inf
    return given
