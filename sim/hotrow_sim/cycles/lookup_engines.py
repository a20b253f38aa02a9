"""Cycles of whole commands, from the engines' taking one to its outcome."""

from hotrow_rtl.config import Config

from .directory import list_cycles

STARTED = 14  # a batch's way to its first beat, besides waiting for its ids
COUNTED = 36  # from the last beat of a batch through both rings to its tally
CLOSED = 4  # from the end of the lists to the outcome, besides the way to memory
LIST_CLOSED = 24  # the same from the last slot of a list


def batch_command_cycles(config: Config, beats, words, splits, latency):
    """OBSERVE or SPLIT: STARTED + max(`lanes`, `latency`) + work + COUNTED, and for a SPLIT
    `latency` + CLOSED besides: the lists of samples leave while lookups are still on their way.

    The work is a beat a cycle, or a word of results a cycle if those are more. The reader
    prepares its lanes, one a cycle, while the first ids are on their way.

    Parameters
    ----------
    beats : int
        Of the batch.
    words : int
        Of results, over the port that carries the most of them; with four, no more than beats.
    splits : bool
    latency : int
        Cycles from a request to the first word, and from the last word to its answer.
    """
    counted = STARTED + max(config.lanes, latency) + max(beats, words) + COUNTED
    return counted + latency + CLOSED if splits else counted


def list_command_cycles(valid, latency):
    """An INSTALL or REMOVE: `list_cycles` + `latency` + LIST_CLOSED."""
    return list_cycles(valid, latency + 1) + latency + LIST_CLOSED
