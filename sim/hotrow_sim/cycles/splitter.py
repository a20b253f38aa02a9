"""Cycles of the splitter: a model of its queues, one step per lookup."""

import numpy as np
from hotrow_rtl.config import Config
from hotrow_rtl.mixing import mix

MISS = 4  # numbering a miss at its first place in the table
PASS = 2  # through an empty queue
ORDER_DEPTH, MISS_DEPTH = 16, 8


def probes(keys, config: Config):
    """Places that each missed key probes beyond its first one, by linear probing."""
    places, mask = {}, 2 * config.miss_entries - 1
    first = (mix(np.asarray(keys, np.uint64), 0, config.key_width) & np.uint64(mask)).tolist()
    extra, listed = [], 0
    for key, place in zip(np.asarray(keys).tolist(), first):
        steps = 0
        while places.get(place + steps & mask, key) != key:
            steps += 1
        extra.append(steps)
        if place + steps & mask not in places and listed < config.miss_entries:
            places[place + steps & mask] = key
            listed += 1
    return extra


def split_cycles(keys, missed, samples, config: Config):
    """From the first answer of the directory to the end of the last list, no sink stalling.

    A lookup passes one queue in order; a miss passes another to the numbering, which serves one
    in MISS cycles and one more per place probed further, and the slot word waits for it. Hence
    max(lookups, MISS * misses + probes) when misses come evenly, more when they come in bursts
    that the queues do not hold. The scan of `samples` follows the last lookup.

    Parameters
    ----------
    keys : uint64[n]
        Packed (table, row) of each lookup.
    missed : bool[n]
    samples : int
    """
    missed = np.asarray(missed, bool)
    extra = iter(probes(np.asarray(keys)[missed], config))
    order, numbering, numbered = [], [], []  # when each entry left its queue
    enter = word = begun = free = -1
    for miss in missed.tolist():
        enter += 1
        if len(order) >= ORDER_DEPTH:
            enter = max(enter, order[-ORDER_DEPTH] + 1)
        if miss and len(numbering) >= MISS_DEPTH:
            enter = max(enter, numbering[-MISS_DEPTH] + 1)
        order.append(max(enter + 1, word))
        word = max(word + 1, enter + PASS)
        if miss:
            numbering.append(max(enter + 1, begun))
            begun = max(enter + PASS, free)
            free = begun + MISS + next(extra)
            if len(numbered) >= MISS_DEPTH:
                free = max(free, numbered[-MISS_DEPTH] + 1)
            numbered.append(max(free + 1, word))
            word = max(word, free + PASS)
    return max(word, enter + 2 + samples) + 2
