"""A generated trace whose hot rows change over time."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .synthetic import SyntheticTrace

PERIOD = 400  # batches
PARTS = 16
_GOLDEN = (5**0.5 - 1) / 2  # its multiples, modulo 1, are evenly spaced


class Rotation:
    """The place of each popularity rank in a table, as a function of the batch: a bijection.

    The ranks are divided into `PARTS` parts of equal length. The ranks at the same position of each
    part form a ring. Once per period a ring rotates by one part: its hottest rank moves to the
    place of the coldest, every other rank to the place of the rank that is one part hotter. The
    rotations of the rings are spread evenly over the period and over the ranks. In any `period`
    batches every rank changes its place exactly once, a hot place is cold for the next `PARTS` - 1
    periods, and at batch 0 each rank is at its own place.

    Parameters
    ----------
    rows : int
        The coldest ranks, which do not fill whole parts, keep their places.
    period : int
        Batches.
    phase : float
        In [0, 1): the part of the period that has passed for the ring of rank 0 at batch 0.
    """

    def __init__(self, rows: int, period: int, phase: float):
        self.period, self.phase = period, phase
        self.parts = min(PARTS, rows)
        self.part_rows = rows // self.parts

    def __call__(self, rank: NDArray[np.int64], index: int) -> NDArray[np.int64]:
        """Places int64[n] of ranks int64[n] in batch `index`."""
        part, ring = np.divmod(rank, self.part_rows)
        ahead = ((self.phase + ring * _GOLDEN) % 1.0 * self.period).astype(np.int64)
        turns = (index + ahead) // self.period
        place = ring + (part - turns) % self.parts * self.part_rows
        return np.where(part < self.parts, place, rank)


class DriftingTrace(SyntheticTrace):
    """A skewed trace whose hot rows are replaced steadily, all of them once per period.

    A hidden weight belongs to a row, not to a rank: a learned row stays valid.

    Parameters
    ----------
    name, cardinalities, slope, seed
        See `SyntheticTrace`; the first batch is the same.
    period : int
        Batches in which the hot set is replaced, if it is at most 1 / `PARTS` of the rows.
    """

    def __init__(self, name: str, cardinalities: Sequence[int], slope: float, period: int = PERIOD,
                 seed: int = 0):
        super().__init__(name, cardinalities, slope, seed=seed)
        self.period = period
        start = np.random.default_rng([seed, 2]).random()
        self._rotations = [
            Rotation(rows, period, (start + column / len(self.cardinalities)) % 1.0)
            for column, rows in enumerate(self.cardinalities)]

    def _rows(self, column: int, rank: NDArray[np.int64], index: int) -> NDArray[np.int64]:
        return super()._rows(column, self._rotations[column](rank, index), index)
