"""Cycles of the access counters, from the acceptance of a command to its outcome, both included."""

import numpy as np
from hotrow_rtl.config import Config

REPORT = 1  # the outcome
LATENCY = 4  # of a bank, from a request to its answer
DISTANCE = 5  # of a bank, between two requests of one set
SCAN = 9  # of a scan, without its requests: from its start to the decision that its sum allows
EMIT = 13  # of the last scan, without its entries: from its start to the first entry, and the end
DECAY = 7  # of a decay, without its requests
UNCHANGED = 3  # of a decay by 0


def bank_cycles(config: Config, rests):
    """Cycles of one bank from its first request to its last answer, both included.

    A bank accepts a request per cycle; a request waits `DISTANCE` cycles after another one of its
    set.

    Parameters
    ----------
    rests : sequence of int
        Key without bank bits of each request, in order.
    """
    sets = config.counter_sets // config.banks
    cycle, last = -1, {}
    for rest in rests:
        place = rest & (sets - 1)
        cycle = max(cycle + 1, last.get(place, -DISTANCE) + DISTANCE)
        last[place] = cycle
    return cycle + 1 + LATENCY if rests else 0


def pace(config: Config):
    """Cycles between requests of a scan: two requests of one set are `DISTANCE` cycles apart."""
    return -(-DISTANCE // (config.counter_sets // config.banks))


def scan_cycles(config: Config):
    """From the first request of a scan to the last; each is for one entry of every bank."""
    return (config.counter_entries // config.banks - 1) * pace(config) + 1


def decay_cycles(config: Config, shift):
    """A scan per position of the shift, without idle cycles."""
    scans = min(shift, config.counter_bits)
    if not scans:
        return UNCHANGED + REPORT
    between = (scans - 1) * config.counter_entries // config.banks * pace(config)
    return DECAY + between + scan_cycles(config) + REPORT


def clear_cycles(config: Config):
    """A DECAY with ALL, which clears a set of every bank per cycle."""
    return 3 + config.counter_sets // config.banks + REPORT


def harvest_cycles(config: Config, counts, wanted, threshold):
    """A scan that counts the eligible entries; one scan per bit of the highest count, if more
    entries are eligible than wanted; a scan that emits a cycle per entry up to the last one.

    Parameters
    ----------
    counts : uint32[sets, ways]
        As in `golden.lookup.counters.Counters`.
    wanted, threshold : int
    """
    scan = scan_cycles(config) + SCAN
    eligible = counts >= max(threshold, 1)
    reached = int(np.count_nonzero(eligible))
    if not reached:
        return scan + 3 + REPORT
    bits = 0
    if reached > wanted:
        last = np.sort(counts[eligible])[-wanted]
        ties = np.flatnonzero(counts == last)[:wanted - np.count_nonzero(counts > last)]
        eligible = counts > last
        eligible.flat[ties] = True
        bits = int(counts.max()).bit_length()
    final = int(np.flatnonzero(eligible)[-1])
    return int((1 + bits) * scan + (bits > 0) + EMIT + final + 1 + REPORT)
