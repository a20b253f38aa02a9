"""A generated trace whose hot rows change as it goes on."""

import numpy as np

from .synthetic import SyntheticTrace

PERIOD = 400  # batches
PARTS = 16
_GOLDEN = (5**0.5 - 1) / 2  # its multiples, modulo 1, leave no gap wide and no two close


class Rotation:
    """Which of a table's places each popularity rank has, batch by batch: a bijection at any time.

    The ranks are cut into `PARTS` parts of equal length. Ranks that stand at the same position of
    their parts make a ring, and once per period the ring moves on by one part: its hottest rank
    goes to the place that was the coldest, every other rank to the place of the rank one part
    hotter. The rings take turns, evenly over the period and over the ranks. So in any `period`
    batches every rank changes its place exactly once, a place that was hot is cold for the next
    `PARTS` - 1 periods, and at batch 0 each rank is at its own place.

    Parameters
    ----------
    rows : int
        What does not fill whole parts, the coldest ranks, stays where it is.
    period : int
        Batches.
    phase : float
        In [0, 1): how far into the period the ring of rank 0 begins.
    """

    def __init__(self, rows, period, phase):
        self.period, self.phase = period, phase
        self.parts = min(PARTS, rows)
        self.part_rows = rows // self.parts

    def __call__(self, rank, index):
        """Places int64[n] of ranks int64[n] in batch `index`."""
        part, ring = np.divmod(rank, self.part_rows)
        ahead = ((self.phase + ring * _GOLDEN) % 1.0 * self.period).astype(np.int64)
        turns = (index + ahead) // self.period
        place = ring + (part - turns) % self.parts * self.part_rows
        return np.where(part < self.parts, place, rank)


class DriftingTrace(SyntheticTrace):
    """A skewed trace in which other rows become hot, steadily, all of them once per period.

    A hidden weight belongs to a row, not to a rank: what a model learned of a row stays true.

    Parameters
    ----------
    name, cardinalities, slope, seed
        As `SyntheticTrace`; it begins like that one.
    period : int
        Batches in which the whole hot set is replaced, as far as it is no more than one part in
        `PARTS` of the rows.
    """

    def __init__(self, name, cardinalities, slope, period=PERIOD, seed=0):
        super().__init__(name, cardinalities, slope, seed=seed)
        self.period = period
        start = np.random.default_rng([seed, 2]).random()
        self._rotations = [
            Rotation(rows, period, (start + column / len(self.cardinalities)) % 1.0)
            for column, rows in enumerate(self.cardinalities)]

    def _rows(self, column, rank, index):
        return super()._rows(column, self._rotations[column](rank, index), index)
