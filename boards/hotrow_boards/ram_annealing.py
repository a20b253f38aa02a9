"""Simulated annealing of a quadratic assignment: which item gets which place."""

from math import exp

import numpy as np
from numba import njit

_TRIES = 50  # of each pair of places, on average
_COOLING = 3000  # how much hotter the annealing begins than it ends


def assign(pull: np.ndarray, squares: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The place of each item, so that the sum of `pull` times `squares` of all pairs is small.

    Parameters
    ----------
    pull : float64[n, n]
        Symmetric, zero on the diagonal: how much any two items pull at each other.
    squares : float64[n, n]
        Squared distance of any two places.
    random : numpy.random.Generator

    Returns
    -------
    int64[n]
    """
    count = len(pull)
    place = random.permutation(count)
    tries = _TRIES * count * count
    pairs, chances = random.integers(count, size=(tries, 2)), random.random(tries)
    hot = np.mean([abs(_change(pull, squares, place, *pair)) for pair in pairs[:count]])
    _exchange(pull, squares, place, pairs, chances, max(hot, np.finfo(float).tiny))
    return place


@njit
def _change(pull, squares, place, one, other):
    """Of half the sum, if these two change places."""
    total = 0.0
    for each in range(len(place)):
        if each != one and each != other:
            total += (pull[one, each] - pull[other, each]) * (
                squares[place[other], place[each]] - squares[place[one], place[each]])
    return total


@njit
def _exchange(pull, squares, place, pairs, chances, hot):
    """Change places, pair by pair, the fewer for the worse the later it is."""
    tries = len(pairs)
    for number in range(tries):
        one, other = pairs[number, 0], pairs[number, 1]
        if one == other:
            continue
        worse = _change(pull, squares, place, one, other)
        if worse <= 0 or chances[number] < exp(-worse / hot * _COOLING ** (number / tries)):
            place[one], place[other] = place[other], place[one]
