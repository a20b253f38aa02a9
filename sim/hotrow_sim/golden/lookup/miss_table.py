"""Golden model of the miss table and of the numbers of missed rows.

A batch starts with an empty table. The table keeps the first `MISS_WAYS` rows of each set; the
list of missed rows has each of them once, at its first owner (see ``combiner``), and every other
row once per owner.
"""

import numpy as np
from hotrow_rtl.config import MISS_WAYS, Config, log2
from hotrow_rtl.lookup.hashing.row_location import split_key


class MissTable:
    """Numbers the missed rows of one batch after another, without state between batches.

    Parameters
    ----------
    config : Config
    """

    def __init__(self, config: Config):
        self.config = config

    def find(self, keys):
        """Responses of the table.

        Parameters
        ----------
        keys : uint64[n]
            Packed (table, row) of the missed owners of a batch, in order.

        Returns
        -------
        kept, repeated : bool[n]
            The table has an entry for the row; it had one before this owner.
        entry : int64[n]
            Entry of a kept row in its bank, set * MISS_WAYS + way.
        """
        kept, earlier, entry, _ = self._find(np.asarray(keys, np.uint64))
        return kept, kept & earlier, entry

    def number(self, keys):
        """Number the list of missed rows.

        Parameters
        ----------
        keys : uint64[n]
            As for `find`. A lookup that joins an owner has the owner's number.

        Returns
        -------
        number : int64[n]
            List index of each owner's row.
        listed : bool[n]
            The owner appends its row to the list, which is `keys[listed]`.
        kept : bool[n]
            The table has an entry for the row.
        """
        kept, earlier, _, first = self._find(np.asarray(keys, np.uint64))
        listed = ~(kept & earlier)
        number = np.cumsum(listed) - 1
        return np.where(listed, number, number[first]), listed, kept

    def _find(self, keys):
        """`kept`, whether an earlier owner has the row, its entry, and its first owner."""
        rows, first, row = np.unique(keys, return_index=True, return_inverse=True)
        bank, rest = split_key(self.config, rows)
        sets = self.config.miss_sets
        set_ = (rest & np.uint64(sets - 1)).astype(np.int64)
        table_set = set_ << log2(self.config.banks) | bank.astype(np.int64)
        # Within a set, the rank of a row by its first owner is its way.
        order = np.lexsort((first, table_set))
        ordered = table_set[order]
        way = np.empty(len(rows), np.int64)
        way[order] = np.arange(len(rows)) - np.searchsorted(ordered, ordered)
        kept, entry = way < MISS_WAYS, set_ * MISS_WAYS + way
        return kept[row], first[row] < np.arange(len(keys)), entry[row], first[row]
