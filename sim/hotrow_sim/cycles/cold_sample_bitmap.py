"""Cycles of the cold-sample bitmap."""

import numpy as np
from hotrow_rtl.config import Config
from hotrow_rtl.lookup.splitter.cold_sample_bitmap import ColdSampleBitmap


def write_rounds(samples, marks, config: Config):
    """Cycles of one beat: the larger number of its even and its odd marked words.

    Parameters
    ----------
    samples : int[lanes]
    marks : bool[lanes]
    """
    words = np.unique(np.asarray(samples)[np.asarray(marks, bool)] // config.lanes)
    odd = int(np.count_nonzero(words & 1))
    return max(1, odd, len(words) - odd)


def listing_cycles(samples, config: Config):
    """From the last beat of a batch to the end of both sample lists, without stalls.

    The lists end later by the write rounds beyond one of each beat, and start no earlier than the
    lists of the batch before end.
    """
    return -(-samples // config.lanes) + ColdSampleBitmap.latency
