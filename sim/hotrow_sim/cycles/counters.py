"""Cycles of the access counters, from taking a command to its outcome, both included."""

import numpy as np
from hotrow_rtl.config import Config

REPORT = 1  # the outcome
LATENCY = 4  # of a bank: from a request to its answer
DISTANCE = 5  # of a bank: cycles between two requests of one set
SCAN = 9  # beside the requests: from the beginning of a walk to the decision that its sum allows
EMIT = 13  # beside the entries: from the beginning of the last walk to its first entry, and the end
DECAY = 7  # beside the requests


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


def pace(config: Config):
    """Cycles from one request to the next of all banks: two of a set `DISTANCE` cycles apart."""
    return -(-DISTANCE // (config.counter_sets // config.banks))


def walk_cycles(config: Config):
    """From the first request to the last, one to all banks at a time for every entry."""
    return (config.counter_entries // config.banks - 1) * pace(config) + 1


def decay_cycles(config: Config, shift):
    """A walk for every place that counts are shifted by, without a gap."""
    walks = min(shift, config.counter_bits)
    between = max(0, walks - 1) * config.counter_entries // config.banks * pace(config)
    return DECAY + between + (walk_cycles(config) if walks else 0) + REPORT


def clear_cycles(config: Config):
    """A DECAY of everything sweeps the sets of all banks at a time."""
    return 3 + config.counter_sets // config.banks + REPORT


def harvest_cycles(config: Config, counts, wanted, threshold):
    """A walk that counts, one more per bit of the largest count if the wanted entries are fewer
    than those counted, and one that emits: a cycle per entry up to the last needed.

    Parameters
    ----------
    counts : uint32[sets, ways]
        As of `golden.counters.Counters`.
    wanted, threshold : int
    """
    walk = walk_cycles(config) + SCAN
    eligible = counts >= max(threshold, 1)
    reached = int(np.count_nonzero(eligible))
    if not reached:
        return walk + 3 + REPORT
    bits = 0
    if reached > wanted:
        last = np.sort(counts[eligible])[-wanted]
        ties = np.flatnonzero(counts == last)[:wanted - np.count_nonzero(counts > last)]
        eligible = counts > last
        eligible.flat[ties] = True
        bits = int(counts.max()).bit_length()
    final = int(np.flatnonzero(eligible)[-1])
    return int((1 + bits) * walk + (bits > 0) + EMIT + final + 1 + REPORT)
