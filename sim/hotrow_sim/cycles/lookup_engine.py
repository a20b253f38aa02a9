"""Cycles of whole commands, from the last part of one to its outcome."""

from hotrow_rtl.config import Config
from hotrow_rtl.lookup.combiner.pipeline_depth import latency as combining

from .directory import list_cycles

STARTED = 14  # a batch's way to its first beat, besides waiting for its ids
PREPARED = 6  # the least of that wait, besides a cycle a lane
COUNTED = 26  # from the last combined beat of a batch through both rings to its tally
PARTED = 15  # the same to its lists of samples, besides a cycle for every `lanes` of them
CLOSED = 4  # from the end of the lists to the outcome, besides the way to memory
LIST_CLOSED = 18  # the same from the last slot of a list


def batch_command_cycles(config: Config, beats, samples, words, splits, latency):
    """OBSERVE or SPLIT: STARTED + max(PREPARED + `lanes`, `latency`) + work + COUNTED and what
    the combiner takes, and for a SPLIT PARTED + `latency` + CLOSED besides.

    The work is a beat a cycle, of a SPLIT also `lanes` samples a cycle behind them, or a word of
    results a cycle if those are more.

    Parameters
    ----------
    beats, samples : int
        Of the batch.
    words : int
        Of results, over the port that carries the most of them; with four, no more than beats.
    splits : bool
    latency : int
        Cycles from a request to the first word, and from the last word to its answer.
    """
    started = STARTED + max(PREPARED + config.lanes, latency)
    counted = COUNTED + combining(config)
    if not splits:
        return started + beats + counted
    work = max(beats - (-samples // config.lanes), words)
    return started + work + counted + PARTED + latency + CLOSED


def list_command_cycles(valid, latency):
    """An INSTALL or REMOVE: `list_cycles` + `latency` + LIST_CLOSED."""
    return list_cycles(valid, latency + 1) + latency + LIST_CLOSED
