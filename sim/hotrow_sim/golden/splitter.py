"""Golden model of the splitter: slots, misses, and the popular and other samples of a batch."""

from dataclasses import dataclass

import numpy as np
from hotrow_rtl.contract import MISS_FLAG, NO_SLOT

from .counters import pack_key, unpack_key


@dataclass(frozen=True)
class Split:
    """Members: `slots` uint32 per lookup; `popular`, `nonpopular` uint32 positions of samples;
    `miss_table`, `miss_row` uint32 per listed miss."""

    slots: np.ndarray
    popular: np.ndarray
    nonpopular: np.ndarray
    miss_table: np.ndarray
    miss_row: np.ndarray


def split(lookups, found, refused, miss_entries):
    """Partition a batch.

    Parameters
    ----------
    lookups : Lookups
    found : uint32[n]
        The directory's answer per lookup: slot or NO_SLOT.
    refused : bool[n]
        Lookups whose row is out of range: they get NO_SLOT, make their sample non-popular and
        are not listed.
    miss_entries : int
        Distinct rows that are listed once; each later row is listed at every appearance.

    Returns
    -------
    Split
    """
    slots = np.where(refused, np.uint32(NO_SLOT), found)
    missed = np.flatnonzero((found == NO_SLOT) & ~refused)
    key = pack_key(lookups.table[missed], lookups.row[missed])
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    appearance = np.empty(len(first), np.int64)  # rank of each distinct row by first appearance
    appearance[np.argsort(first)] = np.arange(len(first))
    appearance = appearance[group]
    is_first = np.zeros(len(missed), bool)
    is_first[first] = True
    listed = is_first | (appearance >= miss_entries)
    index = np.where(listed, np.cumsum(listed) - 1, appearance)
    slots[missed] = np.uint32(MISS_FLAG) | index.astype(np.uint32)
    miss_table, miss_row = unpack_key(key[listed])

    cold = np.zeros(lookups.samples, bool)
    cold[lookups.sample[missed]] = True
    cold[lookups.sample[refused]] = True
    return Split(
        slots=slots,
        popular=np.flatnonzero(~cold).astype(np.uint32),
        nonpopular=np.flatnonzero(cold).astype(np.uint32),
        miss_table=miss_table,
        miss_row=miss_row,
    )
