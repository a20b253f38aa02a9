"""Learning the hot rows again while training, so that the slots follow what is popular now.

While batches are split the device counts them in the same pass. Every so often the counts are
shifted right, so that old lookups weigh less, and the most counted rows become the hot ones.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Exchange:
    """From the rows that are hot to those that should be, flat rows int64[n] each once.

    Parameters
    ----------
    resident : int64[r]
    wanted : int64[w]
        The hottest first.

    Members
    -------
    leaving : int64[l]
        In the order of `resident`.
    arriving : int64[a]
        In the order of `wanted`, so that rows which find no room are the coldest.
    """

    resident: np.ndarray
    wanted: np.ndarray

    @property
    def leaving(self):
        return self.resident[~np.isin(self.resident, self.wanted)]

    @property
    def arriving(self):
        return self.wanted[~np.isin(self.wanted, self.resident)]

    @property
    def rows(self):
        """Every row that is hot before or after: int64[n], ascending."""
        return np.union1d(self.resident, self.wanted)


@dataclass(frozen=True)
class Exchanged:
    """What an exchange did: rows that `left`, that `arrived`, and that were `refused` for lack of
    room."""

    left: int
    arrived: int
    refused: int

    @property
    def moved(self):
        """Rows carried over the link, either way."""
        return self.left + self.arrived


class Relearning:
    """When to learn which rows are hot, and what came of it.

    Parameters
    ----------
    every : int
        Batches from one learning to the next; 0 for one learning only.
    decay : int
        Binary places by which every count is shifted right before learning again.

    Members
    -------
    times, rows_replaced : int
        Learned again so far; rows that arrived by it, over all times.
    """

    def __init__(self, every, decay=1):
        self.every, self.decay = every, decay
        self.times = self.rows_replaced = 0

    def due(self, batches):
        """Whether to learn again, `batches` after the first learning."""
        return self.every > 0 and batches > 0 and batches % self.every == 0

    def first(self, trainer, check):
        """Learn for the first time; from now on steps count, if what they count will be used.

        Parameters
        ----------
        trainer : HotlineTrainer
            Between two steps.
        check : StepCheck
            Of the rows that move.

        Returns
        -------
        Exchanged
        """
        trainer.counting = self.every > 0
        return self._learn(trainer, check, decay=0)

    def again(self, trainer, check):
        """Learn again; see `first`."""
        done = self._learn(trainer, check, self.decay)
        self.times += 1
        self.rows_replaced += done.arrived
        return done

    def figures(self):
        """With the names of the report."""
        return {"relearned": self.times, "rows_replaced": self.rows_replaced}

    def _learn(self, trainer, check, decay):
        exchange = trainer.plan(decay)
        return check.move(exchange.rows, lambda: trainer.exchange(exchange))
