"""Golden model of the access counters: a set-associative table of saturating counts.

A set keeps its ways in order of arrival. A lookup that is resident adds one to its count; another
takes the place of the least counted way, the oldest among equals (an empty way counts zero), and
enters as the youngest with a count of one.
"""

import numpy as np
from hotrow_rtl.config import ROW_NUMBER_WIDTH, Config, log2
from hotrow_rtl.mixing import mix, unmix


def pack_key(table, row):
    """(table, row) as the uint64 key that is hashed; the row is the lower part."""
    return np.asarray(table, np.uint64) << np.uint64(ROW_NUMBER_WIDTH) | np.asarray(row, np.uint64)


def unpack_key(key):
    return (key >> np.uint64(ROW_NUMBER_WIDTH)).astype(np.uint32), key.astype(np.uint32)


class Counters:
    """State of the counters: `count` and `tag` of [set, way], way 0 the oldest."""

    def __init__(self, config: Config):
        self.config = config
        self.limit = (1 << config.counter_bits) - 1
        self.clear()

    def clear(self):
        shape = self.config.counter_sets, self.config.counter_ways
        self.count = np.zeros(shape, np.uint32)
        self.tag = np.zeros(shape, np.uint64)

    def observe(self, table, row):
        """Count lookups in order; return how many were resident when they came."""
        sets, tags = self._place(pack_key(table, row))
        if not len(sets):
            return 0
        # Sets are independent: bring each set's lookups together, in order, and fold runs of one
        # row (all but the first are hits); then all sets advance in step, one run at a time.
        order = np.argsort(sets, kind="stable")
        sets, tags = sets[order], tags[order]
        first = np.flatnonzero(np.r_[True, (sets[1:] != sets[:-1]) | (tags[1:] != tags[:-1])])
        runs = np.diff(np.r_[first, len(sets)])
        sets, tags = sets[first], tags[first]
        starts = np.flatnonzero(np.r_[True, sets[1:] != sets[:-1]])
        lengths = np.diff(np.r_[starts, len(sets)])
        by_length = np.argsort(-lengths, kind="stable")
        starts, lengths = starts[by_length], lengths[by_length]
        hits = int(runs.sum() - len(runs))
        for step in range(int(lengths[0])):
            here = starts[:np.count_nonzero(lengths > step)] + step
            hits += self._advance(sets[here], tags[here], runs[here])
        return hits

    def decay(self, shift):
        """Shift every count right; by 32 places or more, to zero."""
        self.count = (self.count.astype(np.uint64) >> np.uint64(min(shift, 32))).astype(np.uint32)

    def harvest(self, wanted, threshold):
        """The most counted rows.

        Returns
        -------
        table, row, count : uint32[n]
            In order of set and age; ties at the last rank are cut in that order.
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
        mixed = self.tag.ravel()[at] << np.uint64(log2(self.config.counter_sets)) | sets
        return *unpack_key(unmix(mixed, 0, self.config.key_width)), count[at]

    def _place(self, key):
        mixed = mix(key, 0, self.config.key_width)
        sets = (mixed & np.uint64(self.config.counter_sets - 1)).astype(np.int64)
        return sets, mixed >> np.uint64(log2(self.config.counter_sets))

    def _advance(self, sets, tags, runs):
        """One run of one row in each of several sets; return how many rows were resident."""
        count, tag = self.count[sets], self.tag[sets]
        match = (tag == tags[:, None]) & (count > 0)
        hit = match.any(axis=1)
        way = np.where(hit, match.argmax(axis=1), count.argmin(axis=1))
        ways = np.arange(count.shape[1])
        # A new row: the ways behind the victim move up, the row enters as the youngest.
        shifted = np.minimum(ways + (ways >= way[:, None]), count.shape[1] - 1)
        source = np.where(hit[:, None], ways, shifted)
        count, tag = np.take_along_axis(count, source, 1), np.take_along_axis(tag, source, 1)
        place = np.where(hit, way, count.shape[1] - 1)
        at = np.arange(len(sets)), place
        grown = np.where(hit, count[at], 0).astype(np.uint64) + runs.astype(np.uint64)
        count[at], tag[at] = np.minimum(grown, self.limit), tags
        self.count[sets], self.tag[sets] = count, tag
        return int(np.count_nonzero(hit))
