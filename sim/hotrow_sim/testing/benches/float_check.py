"""Comparing the results of a floating-point unit."""

import numpy as np


def check(results, expected, operands, seed=None):
    """Fail unless all results are those expected, naming the first that is not, and the seed."""
    wrong = np.flatnonzero(results != expected)
    if len(wrong):
        at = wrong[0]
        given = ", ".join(f"{int(each[at]):#010x}" for each in operands)
        raise AssertionError(
            f"{len(wrong)} of {len(results)} results are wrong, first number {at}: of {given} "
            f"came {int(results[at]):#010x}, expected {int(expected[at]):#010x}, seed {seed}")
