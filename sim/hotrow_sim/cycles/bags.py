"""Cycles of POOL and UPDATE: rows on their way, one stream of their words, and what computes."""

from hotrow_rtl.config import Config

from .arithmetic import (
    APPLIED,
    LEVEL,
    PLAIN,
    SCALAR,
    SQUARED,
    SUM_OF_STEPS,
    SUMMED,
    beats_per_row,
    mean_cycles,
    pool_cycles,
)
from .mover import ADDED

POOLED = 30  # from the list to the reads, from words to the pool, and from rows to their answers
UPDATED = 21  # the same, of an update
OVERLAPPED = 23  # of Adagrad's scalars with those


def _ports(config: Config):
    """What adding up the ports takes at the end."""
    return ADDED + 2 * config.row_ports if config.row_ports > 1 else 0


def pool_rows_cycles(config: Config, elements, lengths, row_bytes, read_latency, write_latency,
                     first_word=0, mean=False):
    """From a POOL to its outcome, memory never stalling, with as many reads in flight as needed.

    Parameters
    ----------
    config : Config
    elements : int
        Of a row.
    lengths : sequence of int
        Rows of each bag.
    row_bytes : int
        Of a row, which begins and ends on bus words.
    read_latency, write_latency, first_word
        As of `row_mover.move_cycles`.
    mean : bool

    Returns
    -------
    int
    """
    computed = (mean_cycles if mean else pool_cycles)(config, elements, lengths)
    words = -(-row_bytes // config.bus_bytes)
    return (first_word + POOLED + words + read_latency + computed + write_latency
            + _ports(config))


def update_rows_cycles(config: Config, elements, counts, row_bytes, gradient_bytes, adagrad,
                       read_latency, write_latency, first_word=0):
    """The same of an UPDATE.

    The words of a row's gradients, of the row and of its state follow one another. The gradients
    of one row are added with gaps, in which nothing else passes.

    Parameters
    ----------
    config : Config
    elements : int
        Of a row.
    counts : sequence of int
        Gradients of each row.
    row_bytes, gradient_bytes : int
        Of rows that begin and end on bus words.
    adagrad : bool
        Row-wise, else SGD.
    read_latency, write_latency, first_word
        As of `row_mover.move_cycles`.

    Returns
    -------
    int
    """
    words, summand = (-(-each // config.bus_bytes) for each in (row_bytes, gradient_bytes))
    beats = beats_per_row(config, elements)
    steps = 4 * elements // config.lanes
    levels = (steps - 1).bit_length()
    row = max(steps, SCALAR, (steps + LEVEL * levels + SUM_OF_STEPS) / 4) if adagrad else 0
    came, ended = 0, 0
    for count in map(int, counts):
        came += (count - 1) * max(PLAIN, beats) + beats
        ended = max(came, ended) + row
        came += words + adagrad
    computed = max(came, ended) + SUMMED + APPLIED
    if adagrad:
        computed = ended + SUMMED + APPLIED + beats + SQUARED + LEVEL * levels - OVERLAPPED
    return round(first_word + UPDATED + words + summand + read_latency + computed + write_latency
                 + _ports(config))
