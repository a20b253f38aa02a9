"""Cycles of the lookup reader, from taking a command to its last beat, both included."""

import numpy as np
from hotrow_rtl.config import Config, log2
from hotrow_rtl.contract.encoding import BatchFlag
from hotrow_rtl.lookup.reader.batch_descriptor import chunk_bags

REQUEST = 2  # the command, and the request it leads to
CHECK = 3  # from a word to its beat: read the table, hold, compare
SEEDS = 8  # besides a cycle a bag of a chunk: from the request until the first ones are known
SUM = 8  # from the last level of adders to the verdict, and from the command to the request
ENDS = 12  # besides a cycle a level: from lengths fetched again to the first beat
LENGTH_BYTES = 2


def ids_per_word(config: Config, flags):
    return config.bus_bytes // (8 if flags & BatchFlag.ID64 else 4)


def id_words(config: Config, flags, count):
    """Bus words, and beats, of so many ids."""
    return -(-count // ids_per_word(config, flags))


def length_words(config: Config, lengths):
    """Bus words of the lengths of a batch."""
    return -(-LENGTH_BYTES * len(lengths) // config.bus_bytes)


def walk_cycles(config: Config, flags, lengths):
    """Cycles before the first word that a jagged batch leaves for, and from it to the last.

    A chunk of bags, whose lengths fill half a bus word, takes a cycle for each word of ids that
    ends in it, and at least one.
    """
    per_word, chunk = ids_per_word(config, flags), chunk_bags(config)
    ends = np.cumsum(np.asarray(lengths, np.int64))
    count = int(ends[-1])
    whole = ends[chunk - 1::chunk] // per_word  # words that end until then
    if len(ends) % chunk:
        whole = np.append(whole, count // per_word)
    whole[-1] = -(-count // per_word)
    leave = np.diff(whole, prepend=0)
    first, last = np.flatnonzero(leave)[[0, -1]]
    return int(first), int(np.maximum(leave[first:last + 1], 1).sum())


def dense_cycles(config: Config, flags, count, latency):
    """A bus word of ids a cycle, once memory delivers and the first bags are known.

    Parameters
    ----------
    flags : BatchFlag
    count : int
        Lookups.
    latency : int
        Cycles from a request to its first word; the others follow at one a cycle.
    """
    first = max(latency, chunk_bags(config) + SEEDS)
    return REQUEST + first + id_words(config, flags, count) + CHECK


def jagged_cycles(config: Config, flags, lengths, latency):
    """The lengths at a word a cycle, to check their sum; then the walk over chunks and words.

    Parameters
    ----------
    lengths : uint16[bags]
        With more than fit the store, the bus carries them once more beside the ids.
    """
    again = len(lengths) > config.stored_lengths
    words, fetched = id_words(config, flags, int(np.sum(lengths))), length_words(config, lengths)
    levels = log2(config.bus_bytes // LENGTH_BYTES) + 1
    verdict = latency + fetched + levels + SUM
    idle, walk = walk_cycles(config, flags, lengths)
    first = chunk_bags(config) + SEEDS + CHECK + idle
    if again:
        first = max(first, latency + log2(chunk_bags(config)) + ENDS + idle)
    first = verdict + max(first, latency + CHECK + 1)
    carried = verdict + latency + CHECK + 1 + words + again * fetched
    return max(first - 1 + walk, carried)
