"""Golden model of the splitter: slots, misses, and the popular and other samples of a batch."""

from dataclasses import dataclass

import numpy as np
from hotrow_rtl.contract.encoding import MISS_FLAG, NO_SLOT

from .combiner import owners
from .counters import pack_key, unpack_key
from .miss_table import MissTable


@dataclass(frozen=True)
class Split:
    """Members: `slots` uint32 per lookup; `popular`, `nonpopular` uint32 positions of samples;
    `miss_table`, `miss_row` uint32 per listed miss; `unkept` of them have no place in the table
    of misses, so that their rows may be listed again."""

    slots: np.ndarray
    popular: np.ndarray
    nonpopular: np.ndarray
    miss_table: np.ndarray
    miss_row: np.ndarray
    unkept: int


def split(config, lookups, found, refused, beat):
    """Partition a batch.

    Parameters
    ----------
    config : Config
    lookups : Lookups
    found : uint32[n]
        The directory's answer per lookup: slot or NO_SLOT.
    refused : bool[n]
        Lookups whose row is out of range: they get NO_SLOT, make their sample non-popular and
        are not listed.
    beat : int64[n]
        Number of the beat that carries each: lookups of a row close together are one miss even
        where the miss table has no place for the row.

    Returns
    -------
    Split
    """
    slots = np.where(refused, np.uint32(NO_SLOT), found)
    missed = np.flatnonzero((found == NO_SLOT) & ~refused)
    key = pack_key(config, lookups.table[missed], lookups.row[missed])
    owner, joined = np.unique(owners(key, beat[missed], config.window_beats), return_inverse=True)
    index, listed, kept = MissTable(config).number(key[owner])
    slots[missed] = np.uint32(MISS_FLAG) | index[joined].astype(np.uint32)
    miss_table, miss_row = unpack_key(config, key[owner[listed]])

    cold = np.zeros(lookups.samples, bool)
    cold[lookups.sample[missed]] = True
    cold[lookups.sample[refused]] = True
    return Split(
        slots=slots,
        popular=np.flatnonzero(~cold).astype(np.uint32),
        nonpopular=np.flatnonzero(cold).astype(np.uint32),
        miss_table=miss_table,
        miss_row=miss_row,
        unkept=int(np.count_nonzero(listed & ~kept)),
    )
