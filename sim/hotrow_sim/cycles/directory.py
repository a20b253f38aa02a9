"""Cycles of the directory's lists."""

import numpy as np
from hotrow_rtl.config import RING_BEATS, Config

ASKS = 4  # of the ring: from a beat's entry to its first request
LATENCY = 5  # of a bank: from a request to its answer
EDIT = 5  # of a bank: cycles between two edits
OVERHEAD = 11  # command to request, word to beat, last answered beat to outcome
LEAVES = 1  # from its last answer to when a beat gives up its place in the ring
ANSWERED = 3  # from there to its way out of the ring


def list_cycles(valid, first_word, banks=None):
    """An INSTALL or REMOVE, from its command to its last slot.

    OVERHEAD + `first_word` + the ring's: an entry a cycle, while fewer than `RING_BEATS` are
    inside; each waits for `EDIT` cycles per earlier one at its bank, and leaves behind those before
    it. So EDIT per entry if one bank has them all.

    Parameters
    ----------
    valid : bool[n]
        Entries of known tables within their rows.
    first_word : int
        Cycles from the request to the first entry.
    banks : int[n], optional
        Of the entries' rows. Default: no two at one bank, which random rows are close to.
    """
    if banks is None:
        banks = range(len(valid))
    entered, left, edited = -1, [], {}
    for number, (serves, bank) in enumerate(zip(np.asarray(valid, bool).tolist(), banks)):
        entered += 1
        if number >= RING_BEATS - 1:
            entered = max(entered, left[1 - RING_BEATS] + 2)
        complete = entered + 1
        if serves:
            asked = max(entered + ASKS, edited.get(bank, -EDIT) + EDIT)
            edited[bank] = asked
            complete = asked + LATENCY
        left.append(max(complete + LEAVES, left[-1] + 1 if left else 0))
    return OVERHEAD + first_word + (left[-1] + ANSWERED if left else 0)


def clear_cycles(config: Config):
    """A REMOVE of everything sweeps the sets of all banks at a time."""
    return 4 + config.directory_sets // config.banks
