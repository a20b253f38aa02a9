"""Cycles of the sample marks."""

import numpy as np
from hotrow_rtl.config import Config
from hotrow_rtl.lookup.splitter.cold_sample_bitmap import ColdSampleBitmap


def mark_rounds(samples, marks, config: Config):
    """Cycles that one beat takes: its even or its odd marked words, whichever are more.

    Parameters
    ----------
    samples : int[lanes]
    marks : bool[lanes]
    """
    words = np.unique(np.asarray(samples)[np.asarray(marks, bool)] // config.lanes)
    odd = int(np.count_nonzero(words & 1))
    return max(1, odd, len(words) - odd)


def listing_cycles(samples, config: Config):
    """From a batch's last beat to the end of both lists, no sink stalling.

    Later by the rounds that it and the beats before it take beyond one each; and not before the
    lists of the batch before have ended.
    """
    return -(-samples // config.lanes) + ColdSampleBitmap.latency
