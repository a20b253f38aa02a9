"""Golden model of the access counters: a set-associative table of saturating counts.

The counters process owners in order (see ``combiner``). An owner adds its number of lookups to the
count of its row and sets the row's eviction credit to 2**CREDIT_LOG2 times the previous count, of
which CREDITED_WIDTH bits count at most.

On a miss the victim is the way with the lowest count (an empty way has 0; the lowest way on a tie).
While the victim has credit, its credit decreases by the number of lookups, to no less than 0, and
the new row is dropped; otherwise the new row replaces it.
"""

import numpy as np
from hotrow_rtl.config import CREDIT_LOG2, CREDITED_WIDTH, Config, log2
from hotrow_rtl.lookup.hashing.row_location import (
    join_counter_key,
    join_key,
    split_counter_key,
    split_key,
)

from .combiner import owners


def pack_key(config: Config, table, row):
    """(table, row) as the uint64 key that is hashed, with the row in the low bits."""
    return np.asarray(table, np.uint64) << np.uint64(config.row_width) | np.asarray(row, np.uint64)


def unpack_key(config: Config, key):
    """(table, row) of a key, uint32 each."""
    row = key & np.uint64((1 << config.row_width) - 1)
    return (key >> np.uint64(config.row_width)).astype(np.uint32), row.astype(np.uint32)


class Counters:
    """State of the counters.

    Attributes
    ----------
    count : uint32[set, way]
    tag : uint64[set, way]
    credit : int64[set, way]
        Sets are numbered over all banks, with the bank in the lowest bits.
    """

    def __init__(self, config: Config):
        self.config = config
        self.limit = (1 << config.counter_bits) - 1
        self.clear()

    def clear(self):
        shape = self.config.counter_sets, self.config.counter_ways
        self.count = np.zeros(shape, np.uint32)
        self.tag = np.zeros(shape, np.uint64)
        self.credit = np.zeros(shape, np.int64)

    def observe(self, table, row, beat):
        """Count the lookups of a batch.

        Parameters
        ----------
        table, row : integers[n]
            Of the lookups that are not refused, in order.
        beat : int64[n]
            Beat of each lookup.

        Returns
        -------
        int
            Hits: lookups whose row had a count before its owner, and lookups that joined an owner.
        """
        return self.observe_with_counts(table, row, beat)[0]

    def observe_with_counts(self, table, row, beat):
        """`observe`, and return the counts before as well.

        Returns
        -------
        hits : int
        before : int64[n]
            Count of the row before each owner, the first lookup of a row within the combining
            window; 0 for the lookups that joined one.
        """
        before = np.zeros(len(row), np.int64)
        if not len(row):
            return 0, before
        key = pack_key(self.config, table, row)
        owner, amount = np.unique(owners(key, beat, self.config.window_beats), return_counts=True)
        sets, tags = self._location(key[owner])
        # Sets are independent: group the owners by set, then process one owner of every set per
        # step. The sets with the most owners come first, so that a prefix is alive in each step.
        order = np.argsort(sets, kind="stable")
        sets, tags, amount, owner = sets[order], tags[order], amount[order], owner[order]
        starts = np.flatnonzero(np.r_[True, sets[1:] != sets[:-1]])
        lengths = np.diff(np.r_[starts, len(sets)])
        by_length = np.argsort(-lengths, kind="stable")
        starts, lengths = starts[by_length], lengths[by_length]
        hits = int(amount.sum() - len(amount))
        longer = np.searchsorted(-lengths, -np.arange(int(lengths[0])), "left")
        for step, alive in enumerate(longer):
            here = starts[:alive] + step
            hit, before[owner[here]] = self._count_owners(sets[here], tags[here], amount[here])
            hits += int(np.count_nonzero(hit))
        return hits, before

    def counts_of(self, table, row):
        """The count of each row, or 0; arguments as for `observe`."""
        sets, tags = self._location(pack_key(self.config, table, row))
        match = (self.tag[sets] == tags[:, None]) & (self.count[sets] > 0)
        return np.where(match, self.count[sets], 0).sum(axis=1).astype(np.int64)

    def decay(self, shift):
        """Shift every count right (by 32 or more to zero), and clear all credit unless `shift` is
        0."""
        self.count = (self.count.astype(np.uint64) >> np.uint64(min(shift, 32))).astype(np.uint32)
        if shift:
            self.credit[:] = 0

    def harvest(self, wanted, threshold):
        """The rows with the highest counts of at least `threshold`.

        Returns
        -------
        table, row, count : uint32[n]
            In order of set and way; ties at the last rank are cut in that order.
        """
        count = self.count.ravel()
        eligible = count >= max(threshold, 1)
        ranked = np.sort(count[eligible])[::-1]
        chosen = eligible
        if len(ranked) > wanted:
            last = ranked[wanted - 1]
            chosen = count > last
            ties = np.flatnonzero(count == last)[:wanted - np.count_nonzero(chosen)]
            chosen[ties] = True
        at = np.flatnonzero(chosen)
        sets = (at // self.config.counter_ways).astype(np.uint64)
        bank_bits = np.uint64(log2(self.config.banks))
        rest = join_counter_key(self.config, sets >> bank_bits, self.tag.ravel()[at])
        key = join_key(self.config, sets & np.uint64(self.config.banks - 1), rest)
        return *unpack_key(self.config, key), count[at]

    def _location(self, key):
        """Set and tag of each key."""
        bank, rest = split_key(self.config, key)
        sets, tags = split_counter_key(self.config, rest)
        return (sets << np.uint64(log2(self.config.banks)) | bank).astype(np.int64), tags

    def _count_owners(self, sets, tags, amount):
        """Process one owner in each of several sets; return whether each row had a count, and its
        count before."""
        count, tag = self.count[sets], self.tag[sets]
        match = (tag == tags[:, None]) & (count > 0)
        hit = match.any(axis=1)
        way = np.where(hit, match.argmax(axis=1), count.argmin(axis=1))
        resident = self.count[sets, way].astype(np.int64)
        before = np.where(hit, resident, 0)
        dropped = ~hit & (self.credit[sets, way] > 0)  # an empty way has no credit
        earned = np.minimum(before, (1 << CREDITED_WIDTH) - 1) << CREDIT_LOG2
        remaining = np.maximum(self.credit[sets, way] - amount, 0)
        self.credit[sets, way] = np.where(dropped, remaining, earned)
        self.count[sets, way] = np.where(
            dropped, resident, np.minimum(before + amount, self.limit))
        self.tag[sets, way] = np.where(dropped, self.tag[sets, way], tags)
        return hit, before
