"""Golden model of the lookup reader: which table, row and sample each id of a batch means."""

from dataclasses import dataclass

import numpy as np
from hotrow_rtl.contract.encoding import BatchFlag


@dataclass(frozen=True)
class Lookups:
    """The lookups of one batch, in the order of the ids in memory.

    Members
    -------
    table : uint32[n]
    row : uint64[n]
        The id as it stands in memory; not yet checked against the table.
    sample : uint32[n]
    samples : int
        Samples of the batch, those without a lookup included.
    """

    table: np.ndarray
    row: np.ndarray
    sample: np.ndarray
    samples: int


def read_batch(ids, samples, first_table, table_count, flags=0, lengths=None):
    """Expand a batch.

    Parameters
    ----------
    ids : uint32[n] or uint64[n]
        Sample-major ([B, T]) or feature-major ([T, B]), by `flags`.
    samples, first_table, table_count : int
    flags : BatchFlag
    lengths : uint16[B * T], optional
        Ids per bag, in the order of the bags; one each when absent.

    Returns
    -------
    Lookups
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


def beats_of(lanes, count, flags=0, lengths=None):
    """Number of the beat in which the lookup reader delivers each id: that of its bus word.

    Parameters
    ----------
    lanes : int
        32-bit ids in a bus word.
    count : int
        Ids of the batch.
    flags : BatchFlag
    lengths : uint16[bags], optional
        Of a jagged batch; they make no difference.

    Returns
    -------
    int64[count]
    """
    return np.arange(count) // (lanes // 2 if flags & BatchFlag.ID64 else lanes)
