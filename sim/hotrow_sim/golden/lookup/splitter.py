"""Golden model of the splitter: slots, missed rows, and the popular samples of a batch."""

from dataclasses import dataclass

import numpy as np
from hotrow_rtl.contract.encoding import MISS_FLAG, NO_SLOT

from .combiner import owners
from .counters import pack_key, unpack_key
from .miss_table import MissTable


@dataclass(frozen=True)
class Split:
    """Results of a SPLIT.

    Attributes
    ----------
    slots : uint32[lookups]
    popular, nonpopular : uint32[...]
        Numbers of samples.
    miss_table, miss_row : uint32[misses]
        The list of missed rows.
    unkept : int
        Rows of that list without an entry in the miss table, which may be listed again.
    """

    slots: np.ndarray
    popular: np.ndarray
    nonpopular: np.ndarray
    miss_table: np.ndarray
    miss_row: np.ndarray
    unkept: int


def split(config, lookups, found, refused, beat) -> Split:
    """Partition a batch.

    Parameters
    ----------
    config : Config
    lookups : Lookups
    found : uint32[n]
        Response of the directory per lookup: slot or NO_SLOT.
    refused : bool[n]
        Lookups whose row is out of range. They get NO_SLOT, make their sample non-popular and are
        not listed.
    beat : int64[n]
        Beat of each lookup. Lookups of one row in one combiner window are one miss, whether or not
        the miss table has an entry for the row.
    """
    slots = np.where(refused, np.uint32(NO_SLOT), found)
    missed = np.flatnonzero((found == NO_SLOT) & ~refused)
    key = pack_key(config, lookups.table[missed], lookups.row[missed])
    owner, joined = np.unique(owners(key, beat[missed], config.window_beats), return_inverse=True)
    number, listed, kept = MissTable(config).number(key[owner])
    slots[missed] = np.uint32(MISS_FLAG) | number[joined].astype(np.uint32)
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
