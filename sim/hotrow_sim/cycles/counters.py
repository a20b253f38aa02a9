"""Cycles of the access counters, from taking a command to its outcome, both included."""

import numpy as np
from hotrow_rtl.config import Config

REPORT = 1  # the outcome
SCAN = 6  # beside the sets: from the beginning of a scan to the decision that its sum allows
EMIT = 6  # beside the entries: from the beginning of the last scan to its first entry, and the end


def observe_cycles(config: Config, lookups):
    """One cycle per lookup of any trace, then the pipeline drains.

    Parameters
    ----------
    lookups : int
        Refused ones included.
    """
    tree = (config.counter_ways - 1).bit_length() // 2
    return 1 + lookups + tree + 5 + REPORT


def decay_cycles(config: Config):
    return 1 + config.counter_sets + 3 + REPORT


def clear_cycles(config: Config):
    """A DECAY of everything sweeps the sets."""
    return 2 + config.counter_sets + REPORT


def harvest_cycles(config: Config, counts, wanted, threshold):
    """A scan that counts, one more per bit of the largest count if the wanted entries are fewer
    than those counted, and one that emits: a cycle per set up to the last needed, and per entry.

    Parameters
    ----------
    counts : uint32[sets, ways]
        As of `golden.counters.Counters`.
    wanted, threshold : int
    """
    eligible = counts >= max(threshold, 1)
    reached = int(np.count_nonzero(eligible))
    if not reached:
        return config.counter_sets + SCAN + 2 + REPORT
    bits = 0
    if reached > wanted:
        last = np.sort(counts[eligible])[-wanted]
        ties = np.flatnonzero(counts == last)[:wanted - np.count_nonzero(counts > last)]
        eligible = counts > last
        eligible.flat[ties] = True
        bits = int(counts.max()).bit_length()
    final = int(np.flatnonzero(eligible.any(axis=1))[-1])
    emission = final + 1 + np.count_nonzero(eligible)
    return int((1 + bits) * (config.counter_sets + SCAN) + (bits > 0) + EMIT + emission + REPORT)
