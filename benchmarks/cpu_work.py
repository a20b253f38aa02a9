"""The work of the card's lookup side, in steps that are timed on a CPU.

Rows are numbered over all tables, so that one array serves them all. Adding the first row of the
table to each id is not timed.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

STEPS = ("count", "classify", "partition", "misses")
SPLIT = ("classify", "partition", "misses")  # the steps of SPLIT
LARGEST_TOTAL = 2**28  # rows of all tables: every variant keeps an array over them


@dataclass(frozen=True)
class Cut:
    """One batch, in arrays of NumPy or PyTorch.

    Attributes
    ----------
    rows : int64[n]
        Row of each lookup.
    slots : int32[n]
        Slot of each lookup, -1 for none: the result of `classify`, and input of the later steps.
    sample : int64[n]
        Sample of each lookup.
    ends : int64[B + 1]
        Lookups before each sample, then their total.
    columns : int or None
        Lookups per sample; None if the samples differ.
    """

    rows: Any
    slots: Any
    sample: Any
    ends: Any
    columns: int | None

    @property
    def samples(self) -> int:
        return len(self.ends) - 1


@dataclass(frozen=True)
class Work:
    """All batches, and the hot rows.

    Attributes
    ----------
    total : int
        Rows of all tables.
    hot : int64[h]
        Hot rows, ascending; the slot of a row is its place here.
    cuts : list of Cut
    """

    total: int
    hot: Any
    cuts: list


def prepare(cardinalities, hot, taken) -> Work:
    """The work in NumPy arrays.

    Parameters
    ----------
    cardinalities : sequence of int
    hot : RowList
        Rows with a slot on the card.
    taken : list of Samples
    """
    first = np.r_[0, np.cumsum(cardinalities)]
    rows = np.sort(first[hot.table] + hot.row)
    slot_of = np.full(first[-1], -1, np.int32)
    slot_of[rows] = np.arange(len(rows))

    def cut(samples):
        found = first[samples.lookup_columns] + samples.ids.ravel()
        lookups = samples.bag_lengths.reshape(len(samples), -1).sum(axis=1)
        return Cut(found, slot_of[found], np.repeat(np.arange(len(samples)), lookups),
                   np.r_[0, np.cumsum(lookups)],
                   samples.ids.shape[1] if samples.lengths is None else None)

    return Work(int(first[-1]), rows, [cut(samples) for samples in taken])
