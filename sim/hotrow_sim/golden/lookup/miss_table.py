"""Golden model of the miss table and of the numbers in the list of missed rows.

A batch starts with an empty table. The first `MISS_WAYS` rows of each set are kept; they are in the
list once, where their first owner (see ``window``) comes. Other rows have no place in the table and
are in the list once for each of their owners.
"""

import numpy as np
from hotrow_rtl.config import MISS_WAYS, Config, log2
from hotrow_rtl.lookup.hashing.row_location import place


class MissTable:
    """Numbers the missed lookups of one batch after another; nothing is left of the one before.

    Parameters
    ----------
    config : Config
    """

    def __init__(self, config: Config):
        self.config = config

    def find(self, keys):
        """What the table answers.

        Parameters
        ----------
        keys : uint64[n]
            Packed (table, row) of the missed owners of a batch, in order.

        Returns
        -------
        kept, repeated : bool[n]
            The row has a place; it had one before.
        place : int64[n]
            Within the bank, set * MISS_WAYS + way; of a row that is kept.
        """
        kept, earlier, place_, _ = self._find(np.asarray(keys, np.uint64))
        return kept, kept & earlier, place_

    def number(self, keys):
        """Number the list of missed rows.

        Parameters
        ----------
        keys : uint64[n]
            As for `find`. A lookup that joins an owner has its owner's index.

        Returns
        -------
        index : int64[n]
            Of each owner's row in the list.
        listed : bool[n]
            The owner adds its row to the list: `keys[listed]` is the list.
        kept : bool[n]
            The table has a place for the row.
        """
        kept, earlier, _, first = self._find(np.asarray(keys, np.uint64))
        listed = ~(kept & earlier)
        number = np.cumsum(listed) - 1
        return np.where(listed, number, number[first]), listed, kept

    def _find(self, keys):
        """`kept`, whether the row came before, its place, and where it came first."""
        rows, first, row = np.unique(keys, return_index=True, return_inverse=True)
        bank, rest = place(self.config, rows)
        sets = self.config.miss_sets
        set_ = (rest & np.uint64(sets - 1)).astype(np.int64)
        table_set = set_ << log2(self.config.banks) | bank.astype(np.int64)
        # Rows of each set in order of their first owner: the turn of each is its way.
        order = np.lexsort((first, table_set))
        ordered = table_set[order]
        way = np.empty(len(rows), np.int64)
        way[order] = np.arange(len(rows)) - np.searchsorted(ordered, ordered)
        kept, place_ = way < MISS_WAYS, set_ * MISS_WAYS + way
        return kept[row], first[row] < np.arange(len(keys)), place_[row], first[row]
