"""Why samples are cold: which tables miss, and for how many samples a single lookup decides."""

from dataclasses import dataclass

import numpy as np

from .batch import Batch
from .contract import MISS_FLAG
from .errors import BatchError
from .results import Split


@dataclass(frozen=True, eq=False)
class ColdSamples:
    """Misses of a batch by column, that is by table, and by sample.

    Members
    -------
    lookups, misses : int64[columns]
        Of each column.
    samples : int64[columns]
        Samples with a miss in the column.
    alone : int64[columns]
        Samples all of whose misses are in the column: they were popular if its table were wholly
        hot.
    by_misses : int64[n]
        Samples by their number of missed lookups: `by_misses[0]` are popular, `by_misses[1]` are
        cold by one lookup only.
    """

    lookups: np.ndarray
    misses: np.ndarray
    samples: np.ndarray
    alone: np.ndarray
    by_misses: np.ndarray

    @property
    def by_one(self) -> int:
        """Samples that are cold by one lookup only."""
        return int(self.by_misses[1]) if len(self.by_misses) > 1 else 0


def why_cold(batch: Batch, split: Split) -> ColdSamples:
    """Count the misses of a batch that was split.

    Parameters
    ----------
    batch : Batch or integers [samples, tables]
        What `split` is the result of.
    split : Split

    Raises
    ------
    BatchError
        If they do not belong together.
    """
    if not isinstance(batch, Batch):
        batch = Batch.dense(batch)
    if (batch.lookups, batch.samples) != (len(split.slots), len(split.order)):
        raise BatchError(f"the batch has {batch.lookups} ids of {batch.samples} samples, but "
                         f"{len(split.slots)} of {len(split.order)} were split")
    columns = batch.table_count
    bags = np.arange(batch.samples * columns)
    if batch.lengths is not None:
        bags = np.repeat(bags, batch.lengths)
    sample, column = ((bags % batch.samples, bags // batch.samples) if batch.feature_major
                      else (bags // columns, bags % columns))
    missed = split.slots & np.uint32(MISS_FLAG) != 0
    cells = np.bincount(sample[missed] * columns + column[missed],
                        minlength=batch.samples * columns).reshape(batch.samples, columns)
    cold = cells > 0
    return ColdSamples(
        lookups=batch.column_lookups,
        misses=cells.sum(axis=0),
        samples=cold.sum(axis=0),
        alone=cold[cold.sum(axis=1) == 1].sum(axis=0),
        by_misses=np.bincount(cells.sum(axis=1)),
    )
