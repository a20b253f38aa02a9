"""Cycles of the lookup reader, from the acceptance of a command to its last beat, both included."""

import numpy as np
from hotrow_rtl.config import Config, log2
from hotrow_rtl.contract.encoding import BatchFlag
from hotrow_rtl.lookup.reader.batch_descriptor import LENGTH_WIDTH, chunk_bags

REQUEST = 2  # the command and its memory request
CHECK = 3  # from a word to its beat: read the table, register, compare
SEEDS = 8  # from the request to the first bag numbers, plus a cycle per bag of a chunk
SUM = 8  # from the last adder level to the verdict, and from the command to the request
ENDS = 12  # from refetched lengths to the first beat, plus a cycle per level
LENGTH_BYTES = LENGTH_WIDTH // 8


def ids_per_word(config: Config, flags):
    return config.bus_bytes // (8 if flags & BatchFlag.ID64 else 4)


def id_words(config: Config, flags, count):
    """Bus words of `count` ids."""
    return -(-count // ids_per_word(config, flags))


def id_beats(config: Config, flags, count):
    """Beats of `count` ids: their bus words, or with one lane the ids."""
    return count if config.lanes == 1 else id_words(config, flags, count)


def length_words(config: Config, lengths):
    """Bus words of the lengths of a batch."""
    return -(-LENGTH_BYTES * len(lengths) // config.bus_bytes)


def sequence_cycles(config: Config, flags, lengths):
    """Cycles before the first word of a jagged batch leaves, and from there to the last word.

    A chunk is the bags whose lengths fill half a bus word. It takes a cycle per word of ids that
    ends in it, and at least one cycle.
    """
    per_word, chunk = ids_per_word(config, flags), chunk_bags(config)
    ends = np.cumsum(np.asarray(lengths, np.int64))
    count = int(ends[-1])
    whole = ends[chunk - 1::chunk] // per_word  # words that end in the chunks so far
    if len(ends) % chunk:
        whole = np.append(whole, count // per_word)
    whole[-1] = -(-count // per_word)
    leave = np.diff(whole, prepend=0)
    first, last = np.flatnonzero(leave)[[0, -1]]
    return int(first), int(np.maximum(leave[first:last + 1], 1).sum())


def dense_cycles(config: Config, flags, count, latency):
    """A beat of ids per cycle, after the memory latency and the first bag numbers.

    Parameters
    ----------
    flags : BatchFlag
    count : int
        Lookups.
    latency : int
        Cycles from a request to its first word; the others follow at one per cycle.
    """
    first = max(latency, chunk_bags(config) + SEEDS)
    return REQUEST + first + id_beats(config, flags, count) + CHECK


def jagged_cycles(config: Config, flags, lengths, latency):
    """The lengths at a word per cycle, to check their sum; then the sequence of chunks and words.

    Parameters
    ----------
    lengths : uint16[bags]
        If they exceed `stored_lengths`, the bus carries them again beside the ids.
    """
    again = len(lengths) > config.stored_lengths
    count, fetched = int(np.sum(lengths)), length_words(config, lengths)
    words, beats = id_words(config, flags, count), id_beats(config, flags, count)
    levels = log2(config.bus_bytes // LENGTH_BYTES) + 1
    verdict = latency + fetched + levels + SUM
    idle, sequence = sequence_cycles(config, flags, lengths)
    first = chunk_bags(config) + SEEDS + CHECK + idle
    if again:
        first = max(first, latency + log2(chunk_bags(config)) + ENDS + idle)
    first = verdict + max(first, latency + CHECK + 1)
    bus = verdict + latency + CHECK + 1 + max(words + again * fetched, beats)
    return max(first - 1 + max(sequence, beats), bus)
