"""Generated traces: skewed ids, and labels that a model can learn.

Batch `i` depends only on the seed, `i` and the batch size, so any batch can be generated at any
time, and no memory grows with the number of rows.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .criteo import CATEGORICAL, DENSE, KAGGLE_CARDINALITIES
from .trace import Samples, Trace

CRITEO_SLOPE = 1.15  # Criteo's rank-frequency slope, PAPERS section 6
EXACT_RANKS = 64
SIGNAL_ROWS = 20_000  # columns with more rows carry no signal: most of their rows occur once
BIAS = -1.6  # log-odds; with the signal's spread about a quarter of the labels are 1


def ranks(uniform: NDArray[np.float64], rows: int, slope: float) -> NDArray[np.int64]:
    """Draw ranks 0 to rows - 1 whose frequency falls with rank as (rank + 1) ** -slope.

    The first ranks are drawn by their exact probabilities, all others by the inverse of the
    integral of the power between the half-integers around each rank.

    Parameters
    ----------
    uniform : float64[n]
        In [0, 1).
    rows : int
    slope : float
        0 gives equal frequencies.

    Returns
    -------
    int64[n]
    """
    head = min(rows, EXACT_RANKS)
    below = np.cumsum(np.arange(1, head + 1) ** -slope)  # weight of all ranks up to each
    low, high = head + 0.5, rows + 0.5
    power = 1.0 - slope
    is_log = math.isclose(slope, 1.0)
    tail = math.log(high / low) if is_log else (high**power - low**power) / power
    weight = uniform * (below[-1] + tail)
    drawn: NDArray[np.int64] = np.searchsorted(below, weight, side="right")
    far = np.flatnonzero(drawn == head)
    beyond = weight[far] - below[-1]
    place = low * np.exp(beyond) if is_log else (low**power + beyond * power) ** (1.0 / power)
    drawn[far] = np.clip(np.rint(place) - 1, head - 1, rows - 1)
    return drawn


class Scramble:
    """A seeded bijection of 0 to rows - 1 that scatters neighbouring ranks over the table."""

    def __init__(self, rows: int, rng: np.random.Generator):
        self.rows = rows
        self.factor = int(rng.integers(1, rows + 1))
        while math.gcd(self.factor, rows) != 1:
            self.factor += 1
        self.factor %= max(rows, 2)
        self.offset = int(rng.integers(rows))

    def __call__(self, rank: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places int64[n] of ranks int64[n]; exact for up to 2**32 rows."""
        product = rank.astype(np.uint64) * np.uint64(self.factor) + np.uint64(self.offset)
        return (product % np.uint64(self.rows)).astype(np.int64)


class SyntheticTrace(Trace):
    """Independent columns of skewed ids, normal dense features, and a planted signal.

    The log-odds of the label are the sum of a hidden weight per row of the smaller columns, a
    hidden linear function of the dense features, and noise; about a quarter or a fifth of the
    labels are 1, unless all lookups of a column have the same id.

    Parameters
    ----------
    name : str
    cardinalities : sequence of int
    slope : float or None
        Exponent of the rank-frequency law; with None every lookup of a column has the same id.
    dense_columns : int
    seed : int
    columns : sequence of str, optional
    """

    synthetic, labelled, samples = True, True, None

    def __init__(self, name: str, cardinalities: Sequence[int], slope: float | None,
                 dense_columns: int = 0, seed: int = 0, columns: Sequence[str] | None = None):
        self.name, self.cardinalities = name, tuple(cardinalities)
        self.columns = tuple(columns or (f"C{i + 1}" for i in range(len(self.cardinalities))))
        self.dense_columns, self.slope, self.seed = dense_columns, slope, seed
        hidden = np.random.default_rng([seed, 0])
        self._scrambles = [Scramble(rows, hidden) for rows in self.cardinalities]
        self._salts = hidden.integers(1 << 63, size=len(self.cardinalities), dtype=np.uint64)
        self._dense_weights = hidden.standard_normal(dense_columns) / max(dense_columns, 1) ** 0.5
        small = [c for c, rows in enumerate(self.cardinalities) if rows <= SIGNAL_ROWS]
        self._signal = small or list(range(len(self.cardinalities)))

    def batch(self, index: int, batch_size: int) -> Samples:
        rng = np.random.default_rng([self.seed, 1, batch_size, index])
        ids = np.empty((batch_size, len(self.cardinalities)), np.uint32)
        for column, scramble in enumerate(self._scrambles):
            if self.slope is None:
                rank = np.zeros(batch_size, np.int64)
            else:
                rank = ranks(rng.random(batch_size), scramble.rows, self.slope)
            ids[:, column] = self._rows(column, rank, index)
        dense = rng.standard_normal((batch_size, self.dense_columns)).astype(np.float32)
        score = self._score(ids, dense) + 0.5 * rng.standard_normal(batch_size)
        label = rng.random(batch_size) < 1 / (1 + np.exp(-(score + BIAS)))
        return Samples(ids, None, dense, label.astype(np.float32))

    def _rows(self, column: int, rank: NDArray[np.int64], index: int) -> NDArray[np.int64]:
        """Rows int64[B] of the ranks drawn for a column of batch `index`."""
        return self._scrambles[column](rank)

    def _score(self, ids: NDArray[np.uint32], dense: NDArray[np.float32]) -> NDArray[np.float64]:
        """float64[B]: the learnable part of the log-odds."""
        score: NDArray[np.float64] = 1.5 * (dense @ self._dense_weights)
        for column in self._signal:
            score += hidden_weight(ids[:, column], self._salts[column]) / len(self._signal) ** 0.5
        return score


def hidden_weight(ids: NDArray[np.uint32], salt: np.uint64) -> NDArray[np.float64]:
    """A fixed pseudo-random weight in [-1.75, 1.75), unit variance, per id (splitmix64)."""
    mixed = ids.astype(np.uint64) + salt
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return ((mixed >> np.uint64(11)).astype(np.float64) / 2**53 - 0.5) * 12**0.5


def criteo_shape(slope: float = CRITEO_SLOPE, seed: int = 0) -> SyntheticTrace:
    """A trace with the table sizes and dense columns of Criteo's Kaggle data set."""
    return SyntheticTrace(f"criteo-shape:{slope:g}", KAGGLE_CARDINALITIES, slope,
                          len(DENSE), seed, CATEGORICAL)
