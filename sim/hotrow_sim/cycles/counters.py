"""Cycles of the access counters, from taking a command to its outcome, both included."""

import numpy as np
from hotrow_rtl.config import Config

REPORT = 1  # the outcome
LATENCY = 4  # of a bank: from a request to its answer
DISTANCE = 5  # of a bank: cycles between two requests of one set
SCAN = 6  # beside the sets: from the beginning of a scan to the decision that its sum allows
EMIT = 6  # beside the entries: from the beginning of the last scan to its first entry, and the end


def bank_cycles(config: Config, rests):
    """Of one count bank, from its first request to its last answer, both included.

    A request a cycle; one whose set was asked less than `DISTANCE` cycles before waits.

    Parameters
    ----------
    rests : sequence of int
        Of the rows asked for, in order.
    """
    sets = config.counter_sets // config.banks
    cycle, last = -1, {}
    for rest in rests:
        place = rest & (sets - 1)
        cycle = max(cycle + 1, last.get(place, -DISTANCE) + DISTANCE)
        last[place] = cycle
    return cycle + 1 + LATENCY if rests else 0


def decay_cycles(config: Config):
    return 1 + config.counter_sets + 3 + REPORT


def clear_cycles(config: Config):
    """A DECAY of everything sweeps the sets of all banks at a time."""
    return 2 + config.counter_sets // config.banks + REPORT


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
