"""Golden model of the directory: the slot of each resident row."""

import numpy as np
from hotrow_rtl.config import Config, log2
from hotrow_rtl.contract.encoding import NO_SLOT
from hotrow_rtl.lookup.hashing.row_location import directory_hash, split_key

from .counters import pack_key


class Directory:
    """A set-associative directory with one or two hash choices.

    A `partition` is (log2 of the number of parts, number of the part), as a table registers it.

    Attributes
    ----------
    tag : uint64[choice, set, way]
    valid : bool[choice, set, way]
        Sets are numbered over all banks, with the bank in the lowest bits.
    """

    def __init__(self, config: Config):
        self.config = config
        self.clear()

    def clear(self):
        c = self.config
        shape = c.directory_choices, c.directory_sets, c.directory_ways
        self.tag = np.zeros(shape, np.uint64)
        self.valid = np.zeros(shape, bool)

    def lookup(self, table, row, parts_log2, part):
        """Slot of each row, or NO_SLOT; uint32[n] for arguments of shape [n]."""
        slots = np.full(len(table), NO_SLOT, np.uint32)
        for choice in reversed(range(self.config.directory_choices)):
            sets, tags = self._location(choice, table, row, parts_log2, part)
            match = self.valid[choice, sets] & (self.tag[choice, sets] == tags[:, None])
            hit = match.any(axis=1)
            slots[hit] = self._slot(choice, sets[hit], match[hit].argmax(axis=1))
        return slots

    def install(self, table, row, partition):
        """Give one row a slot; return (slot or NO_SLOT, whether the row had one before).

        The row takes the lowest free way of the choice whose set has more free ways, of the first
        choice on a tie.
        """
        resident = self._find(table, row, partition)
        if resident is not None:
            return self._slot(*resident), True
        locations = [(choice, *self._location_of_one(choice, table, row, partition))
                     for choice in range(self.config.directory_choices)]
        free = [np.count_nonzero(~self.valid[choice, at]) for choice, at, _ in locations]
        choice, at, tag = locations[int(np.argmax(free))]
        if not max(free):
            return NO_SLOT, False
        way = int(np.argmin(self.valid[choice, at]))
        self.valid[choice, at, way], self.tag[choice, at, way] = True, tag
        return self._slot(choice, at, way), False

    def install_each(self, table, row, parts_log2, part):
        """`install` rows in order; arguments as for `lookup`.

        Returns
        -------
        slots : uint32[n]
        present : bool[n]
        """
        done = [self.install(*each[:2], each[2:])
                for each in zip(table, row, parts_log2, part, strict=True)]
        return (np.array([slot for slot, _ in done], np.uint32),
                np.array([present for _, present in done], bool))

    def remove(self, table, row, partition):
        """Free one row's slot and return it, or NO_SLOT."""
        resident = self._find(table, row, partition)
        if resident is None:
            return NO_SLOT
        self.valid[resident] = False
        return self._slot(*resident)

    def set_starts(self, table, row, parts_log2, part):
        """First slot of each row's set, a list per hash choice; arguments as for `lookup`."""
        return [
            self._slot(choice, self._location(choice, table, row, parts_log2, part)[0], 0).tolist()
            for choice in range(self.config.directory_choices)]

    def _location(self, choice, table, row, parts_log2, part):
        """Set and tag of each row."""
        c = self.config
        bank, rest = split_key(c, pack_key(c, table, row))
        hashed = directory_hash(c, choice, rest)
        width = (log2(c.directory_sets // c.banks) - np.asarray(parts_log2)).astype(np.uint64)
        low = hashed & ((np.uint64(1) << width) - np.uint64(1))
        sets = np.asarray(part, np.uint64) << width | low
        return ((sets << np.uint64(log2(c.banks)) | bank).astype(np.int64),
                hashed >> np.uint64(c.bank_key_width - c.directory_tag_width))

    def _location_of_one(self, choice, table, row, partition):
        sets, tags = self._location(choice, [table], [row], [partition[0]], [partition[1]])
        return int(sets[0]), tags[0]

    def _find(self, table, row, partition):
        """(choice, set, way) of a resident row, or None."""
        for choice in range(self.config.directory_choices):
            at, tag = self._location_of_one(choice, table, row, partition)
            match = self.valid[choice, at] & (self.tag[choice, at] == tag)
            if match.any():
                return choice, at, int(match.argmax())
        return None

    def _slot(self, choice, sets, way):
        c = self.config
        return (choice * c.directory_sets + sets) * c.directory_ways + way
