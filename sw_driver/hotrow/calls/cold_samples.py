"""Why samples are cold: the misses of each table, and the samples with a single miss."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..contract.errors import BatchError
from ..contract.generated import MISS_FLAG
from ..operands.batch import Batch
from ..operands.results import Split


@dataclass(frozen=True, eq=False)
class ColdSamples:
    """Misses of a batch by column, that is by table, and by sample.

    Attributes
    ----------
    lookups, misses : int64[columns]
        Lookups and misses of each column.
    samples : int64[columns]
        Samples with a miss in the column.
    alone : int64[columns]
        Samples whose misses are all in the column: if every row of its table were hot, they would
        be popular.
    by_misses : int64[n]
        Samples by their number of misses: `by_misses[0]` are popular, `by_misses[1]` have a single
        miss.
    """

    lookups: NDArray[np.int64]
    misses: NDArray[np.int64]
    samples: NDArray[np.int64]
    alone: NDArray[np.int64]
    by_misses: NDArray[np.int64]

    @property
    def by_one(self) -> int:
        """Samples with a single miss."""
        return int(self.by_misses[1]) if len(self.by_misses) > 1 else 0


def why_cold(batch: Batch | ArrayLike, split: Split) -> ColdSamples:
    """Count the misses of a batch.

    Parameters
    ----------
    batch : Batch or integers [samples, tables]
    split : Split
        The result of `Device.split` on the batch.

    Raises
    ------
    BatchError
        If `split` is the result of another batch.
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
