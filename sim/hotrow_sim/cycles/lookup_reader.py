"""Cycles of the lookup reader, from taking a command to its last beat, both included."""

import numpy as np
from hotrow_rtl.config import Config
from hotrow_rtl.contract import BatchFlag

REQUEST = 2  # the command, and the request it leads to
CHECK = 3  # from a word to its beat: read the table, hold, compare
FIRST_BAG = 2  # from a word of lengths to the first bag
LENGTH_BYTES = 2


def ids_per_word(config: Config, flags):
    return config.bus_bytes // (8 if flags & BatchFlag.ID64 else 4)


def dense_cycles(config: Config, flags, count, latency):
    """A bus word of ids a cycle, once memory delivers and the lanes know their places.

    Parameters
    ----------
    flags : BatchFlag
    count : int
        Lookups.
    latency : int
        Cycles from a request to its first word; the others follow at one a cycle.
    """
    per_word = ids_per_word(config, flags)
    return REQUEST + max(latency, per_word) + -(-count // per_word) + CHECK


def jagged_cycles(config: Config, flags, lengths, latency):
    """The lengths at a word a cycle, to check their sum; then each bag as many cycles as it
    touches words of ids, and at least one.

    Parameters
    ----------
    lengths : uint16[bags]
    """
    per_word = ids_per_word(config, flags)
    lengths = np.asarray(lengths, np.int64)
    ends = np.cumsum(lengths)
    touched = np.where(lengths, (ends - 1) // per_word - (ends - lengths) // per_word + 1, 1)
    final = np.flatnonzero(lengths)[-1]
    levels = (config.bus_bytes // LENGTH_BYTES).bit_length()
    words = -(-LENGTH_BYTES * len(lengths) // config.bus_bytes)
    checking = 1 + REQUEST + latency + words + levels + 2
    return checking + 1 + latency + FIRST_BAG + int(touched[:final + 1].sum()) + CHECK
