"""Cycles of commands of the lookup engine, from the last part of a command to its outcome."""

from hotrow_rtl.config import Config
from hotrow_rtl.lookup.combiner.pipeline_depth import latency as combiner_latency

from .directory import list_cycles

STARTED = 14  # from the command to the first beat of its batch, without the wait for its ids
PREPARED = 6  # least cycles of that wait, plus one per lane
COUNTED = 26  # from the last combined beat of a batch through both crossbars to its statistics
PIPED = 13  # fewer with one bank: through two pipes, and without stripes
PARTED = 15  # from there to the sample lists, plus a cycle per `lanes` samples
CLOSED = 4  # from the end of the lists to the outcome, without the memory latency
LIST_CLOSED = 17  # from the last slot of a list to the outcome, without the memory latency


def batch_command_cycles(config: Config, beats, samples, words, writes, latency):
    """A batch command: STARTED + max(PREPARED + `lanes`, `latency`) + work + COUNTED + the latency
    of the combiner; if it writes results, PARTED + `latency` + CLOSED too.

    The work is one beat per cycle; for a SPLIT also `lanes` samples per cycle after the beats; or
    one word of results per cycle, if there are more words.

    Parameters
    ----------
    beats, samples : int
        Of the batch.
    words : int
        Result words on the busiest port.
    writes : bool
        The command writes results.
    latency : int
        Cycles from a request to the first word, and from the last word to its response.
    """
    started = STARTED + max(PREPARED + config.lanes, latency)
    counted = COUNTED - PIPED * (config.banks == 1) + combiner_latency(config)
    if not writes:
        return started + beats + counted
    work = max(beats - (-samples // config.lanes), words)
    return started + work + counted + PARTED + latency + CLOSED


def list_command_cycles(config: Config, valid, latency):
    """An INSTALL or REMOVE: `list_cycles` + `latency` + LIST_CLOSED."""
    banks = [0] * len(valid) if config.banks == 1 else None
    return list_cycles(valid, latency + 1, banks) + latency + LIST_CLOSED
