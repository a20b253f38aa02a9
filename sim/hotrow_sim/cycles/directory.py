"""Cycles of the directory's lists."""

import numpy as np
from hotrow_rtl.config import Config

EDIT = 6  # an edit has the pipeline of five stages to itself
DRAIN = EDIT - 1  # what an edit waits for the query before it, if that edits nothing
OVERHEAD = 5  # command to request, entry to query, last answer to outcome


def list_cycles(valid, first_word):
    """An INSTALL or REMOVE, from its command to its last slot: OVERHEAD + `first_word` + queries.

    The queries take EDIT cycles for each valid entry, one for each other, and DRAIN for each run
    of others.

    Parameters
    ----------
    valid : bool[n]
        Entries of known tables within their rows.
    first_word : int
        Cycles from the request to the first entry.
    """
    valid = np.asarray(valid, bool)
    edits, runs = np.count_nonzero(valid), np.count_nonzero(~valid & np.r_[True, valid[:-1]])
    return OVERHEAD + first_word + EDIT * edits + len(valid) - edits + DRAIN * runs


def clear_cycles(config: Config):
    """A REMOVE of everything sweeps the sets."""
    return 2 + config.directory_sets
