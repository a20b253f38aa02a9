"""Cycles of INSTALL and REMOVE."""

import numpy as np
from hotrow_rtl.config import RING_BEATS, Config

REQUESTED = 4  # of the crossbar, from the entry of a beat to its first request
LATENCY = 6  # of a bank, from a request to its answer
EDIT = 5  # of a bank, between two edits
OVERHEAD = 11  # command to request, word to beat, and last answered beat to outcome
RELEASED = 1  # from the last answer of a beat to the release of its entry in the crossbar
ANSWERED = 3  # from there to the output of the crossbar


def list_cycles(valid, first_word, banks=None):
    """An INSTALL or REMOVE, from its command to its last slot.

    OVERHEAD + `first_word` + the crossbar's cycles: an entry per cycle while fewer than
    `RING_BEATS` are in the crossbar. Each entry waits EDIT cycles per earlier entry of its bank and
    leaves in order, so a list of one bank takes EDIT cycles per entry.

    Parameters
    ----------
    valid : bool[n]
        Entries of registered tables with rows in range.
    first_word : int
        Cycles from the request to the first entry.
    banks : int[n], optional
        Bank of each entry; default all different, which approximates random rows.
    """
    if banks is None:
        banks = range(len(valid))
    entered, left, edited = -1, [], {}
    for number, (serves, bank) in enumerate(
            zip(np.asarray(valid, bool).tolist(), banks, strict=True)):
        entered += 1
        if number >= RING_BEATS - 1:
            entered = max(entered, left[1 - RING_BEATS] + 2)
        complete = entered + 1
        if serves:
            requested = max(entered + REQUESTED, edited.get(bank, -EDIT) + EDIT)
            edited[bank] = requested
            complete = requested + LATENCY
        left.append(max(complete + RELEASED, left[-1] + 1 if left else 0))
    return OVERHEAD + first_word + (left[-1] + ANSWERED if left else 0)


def clear_cycles(config: Config):
    """A REMOVE with ALL, which clears a set of every bank per cycle."""
    return 4 + config.directory_sets // config.banks
