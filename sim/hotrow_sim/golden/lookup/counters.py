"""Golden model of the access counters: a set-associative table of saturating counts.

Lookups are counted in the order of their owners (see ``window``): an owner adds the lookups that it
stands for to the count of its row, whose credit becomes 2**CREDIT_LOG2 times what the count was, a
count of as many as CREDITED_WIDTH bits tell at most. A row that is not resident meets the least
counted way of its set (an empty way counts zero), the first of equals: one that has credit loses
one for each lookup, as far as it has any, and stays; from another it takes the place.
"""

import numpy as np
from hotrow_rtl.config import CREDIT_LOG2, CREDITED_WIDTH, Config, log2
from hotrow_rtl.lookup.hashing.row_location import counter_place, counter_rest, key_of, place

from .combiner import owners


def pack_key(config: Config, table, row):
    """(table, row) as the uint64 key that is hashed; the row is the lower part."""
    return np.asarray(table, np.uint64) << np.uint64(config.row_width) | np.asarray(row, np.uint64)


def unpack_key(config: Config, key):
    """The (table, row), as uint32 each, that `pack_key` took."""
    row = key & np.uint64((1 << config.row_width) - 1)
    return (key >> np.uint64(config.row_width)).astype(np.uint32), row.astype(np.uint32)


class Counters:
    """State of the counters: `count`, `tag` and `credit` of [set, way].

    Sets are numbered over all banks, the bank in the lowest bits.
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
            In order, those that are not refused.
        beat : int64[n]
            Number of the beat that carries each.

        Returns
        -------
        int
            Lookups whose row was counted when their owner came, or that joined an owner.
        """
        return self.observe_each(table, row, beat)[0]

    def observe_each(self, table, row, beat):
        """As `observe`; tell what was counted before, too.

        Returns
        -------
        hits : int
            As of `observe`.
        before : int64[n]
            What the row's count was when each owner came; zero of lookups that joined one.
        """
        before = np.zeros(len(row), np.int64)
        if not len(row):
            return 0, before
        key = pack_key(self.config, table, row)
        owner, amount = np.unique(owners(key, beat, self.config.window_beats), return_counts=True)
        sets, tags = self._place(key[owner])
        # Sets are independent: bring each one's owners together, in order; then all sets advance in
        # step, one owner at a time.
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
            hit, before[owner[here]] = self._advance(sets[here], tags[here], amount[here])
            hits += int(np.count_nonzero(hit))
        return hits, before

    def held(self, table, row):
        """The count of each row, zero of one that has none; arguments as of `observe`."""
        sets, tags = self._place(pack_key(self.config, table, row))
        match = (self.tag[sets] == tags[:, None]) & (self.count[sets] > 0)
        return np.where(match, self.count[sets], 0).sum(axis=1).astype(np.int64)

    def decay(self, shift):
        """Shift every count right, by 32 places or more to zero, and take all credit."""
        self.count = (self.count.astype(np.uint64) >> np.uint64(min(shift, 32))).astype(np.uint32)
        if shift:
            self.credit[:] = 0

    def harvest(self, wanted, threshold):
        """The most counted rows.

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
        rest = counter_rest(self.config, sets >> bank_bits, self.tag.ravel()[at])
        key = key_of(self.config, sets & np.uint64(self.config.banks - 1), rest)
        return *unpack_key(self.config, key), count[at]

    def _place(self, key):
        bank, rest = place(self.config, key)
        sets, tags = counter_place(self.config, rest)
        return (sets << np.uint64(log2(self.config.banks)) | bank).astype(np.int64), tags

    def _advance(self, sets, tags, amount):
        """One owner in each of several sets; return whether each one's row was resident, and its
        count before."""
        count, tag = self.count[sets], self.tag[sets]
        match = (tag == tags[:, None]) & (count > 0)
        hit = match.any(axis=1)
        way = np.where(hit, match.argmax(axis=1), count.argmin(axis=1))
        resident = self.count[sets, way].astype(np.int64)
        before = np.where(hit, resident, 0)
        stays = ~hit & (resident > 0) & (self.credit[sets, way] > 0)
        earned = np.minimum(before, (1 << CREDITED_WIDTH) - 1) << CREDIT_LOG2  # of a new one none
        left = np.maximum(self.credit[sets, way] - amount, 0)
        self.credit[sets, way] = np.where(stays, left, earned)
        self.count[sets, way] = np.where(stays, resident, np.minimum(before + amount, self.limit))
        self.tag[sets, way] = np.where(stays, self.tag[sets, way], tags)
        return hit, before
