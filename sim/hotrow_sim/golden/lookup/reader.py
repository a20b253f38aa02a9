"""Golden model of the lookup reader: table, row and sample of each id of a batch."""

from dataclasses import dataclass

import numpy as np
from hotrow_rtl.contract.encoding import BatchFlag


@dataclass(frozen=True)
class Lookups:
    """The lookups of one batch, in the order of the ids in memory.

    Attributes
    ----------
    table : uint32[n]
    row : uint64[n]
        The id from memory, not checked against the table.
    sample : uint32[n]
    samples : int
        Samples of the batch, including samples without a lookup.
    """

    table: np.ndarray
    row: np.ndarray
    sample: np.ndarray
    samples: int


def read_batch(ids, samples, first_table, table_count, flags=0, lengths=None) -> Lookups:
    """Expand a batch.

    Parameters
    ----------
    ids : uint32[n] or uint64[n]
        Sample-major ([B, T]) or feature-major ([T, B]), by `flags`.
    samples, first_table, table_count : int
    flags : BatchFlag
    lengths : uint16[B * T], optional
        Ids of each bag, in the order of the bags; default 1.
    """
    bags = samples * table_count
    lengths = np.ones(bags, dtype=np.uint16) if lengths is None else lengths
    bag = np.repeat(np.arange(bags), lengths)
    if flags & BatchFlag.FEATURE_MAJOR:
        column, sample = bag // samples, bag % samples
    else:
        column, sample = bag % table_count, bag // table_count
    return Lookups(
        table=(first_table + column).astype(np.uint32),
        row=ids.astype(np.uint64),
        sample=sample.astype(np.uint32),
        samples=samples,
    )


def beats_of(lanes, count, flags=0):
    """Beat of each id: its bus word, or with one lane the id itself; int64[count].

    Parameters
    ----------
    lanes : int
        Lookups per cycle: 1, or the 32-bit ids in a bus word.
    count : int
        Ids of the batch.
    flags : BatchFlag
    """
    return np.arange(count) // max(1, lanes // 2 if flags & BatchFlag.ID64 else lanes)
