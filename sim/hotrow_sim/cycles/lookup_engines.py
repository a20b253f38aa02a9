"""Cycles of whole commands, from the engines' taking one to its outcome."""

from hotrow_rtl.config import Config

from .directory import list_cycles
from .splitter import split_cycles

STARTED = 14  # a batch's way to the first answer of the directory, besides waiting for its ids
CLOSED = 4  # from the end of the splitter's lists to the outcome, besides the way to memory
LIST_CLOSED = 7  # the same from the last slot of a list


def split_command_cycles(keys, missed, samples, config: Config, latency):
    """A dense SPLIT: STARTED + max(`lanes`, `latency`) + `split_cycles` + `latency` + CLOSED.

    The reader prepares its lanes, one a cycle, while the first ids are on their way.

    Parameters
    ----------
    keys, missed, samples
        As for `split_cycles`.
    latency : int
        Cycles from a request to the first word, and from the last word to its answer.
    """
    batch = split_cycles(keys, missed, samples, config)
    return STARTED + max(config.lanes, latency) + batch + latency + CLOSED


def list_command_cycles(valid, latency):
    """An INSTALL or REMOVE: `list_cycles` + `latency` + LIST_CLOSED."""
    return list_cycles(valid, latency + 1) + latency + LIST_CLOSED
