"""Cycles of POOL and UPDATE: memory latency, one stream of row words, and the arithmetic."""

from hotrow_rtl.config import Config
from hotrow_sim.cycles.arithmetic import (
    APPLIED,
    beats_per_row,
    mean_cycles,
    pool_cycles,
    squared_cycles,
    stepped_rows,
)
from hotrow_sim.cycles.mover import ADDED

POOLED = 30  # from the list to the reads, from words to the pool, and from rows to their responses
UPDATED = 21  # the same path of an update


def _ports(config: Config):
    """Addition of the ports' counts at the end."""
    return ADDED + 2 * config.row_ports if config.row_ports > 1 else 0


def pool_rows_cycles(config: Config, elements, lengths, row_bytes, read_latency, write_latency,
                     first_word=0, mean=False) -> int:
    """From a POOL to its outcome, with memory that never stalls and sufficient reads in flight.

    Parameters
    ----------
    config : Config
    elements : int
        Of a row.
    lengths : sequence of int
        Rows of each bag.
    row_bytes : int
        Of a row, which starts and ends at bus words.
    read_latency, write_latency, first_word
        As for `mover.move_cycles`.
    mean : bool
    """
    computed = (mean_cycles if mean else pool_cycles)(config.units, elements, lengths)
    words = -(-row_bytes // config.bus_bytes)
    return (first_word + POOLED + words + read_latency + computed + write_latency
            + _ports(config))


def update_rows_cycles(config: Config, elements, counts, row_bytes, gradient_bytes, adagrad,
                       read_latency, write_latency, first_word=0) -> int:
    """From an UPDATE to its outcome, likewise.

    The words of a row's gradients, of the row and of its state are consecutive. One lane adds
    gradients or updates rows.

    Parameters
    ----------
    config : Config
    elements : int
        Of a row.
    counts : sequence of int
        Gradients of each row.
    row_bytes, gradient_bytes : int
        Of rows that start and end at bus words.
    adagrad : bool
        Row-wise Adagrad, else SGD.
    read_latency, write_latency, first_word
        As for `mover.move_cycles`.
    """
    words, gradient = (-(-each // config.bus_bytes) for each in (row_bytes, gradient_bytes))
    parts = -(-row_bytes // config.units.bus_bytes)  # words of a row at the arithmetic
    if config.units.lanes == 1:
        parts = max(parts, beats_per_row(config.units, elements))
    stepped = stepped_rows(config.units, elements, counts, adagrad, parts + adagrad)
    squared = adagrad * squared_cycles(config.units, elements)
    return round(first_word + UPDATED + words + gradient + read_latency + stepped + squared
                 + APPLIED + write_latency + _ports(config))
