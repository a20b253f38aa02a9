"""Replacement policies of the planner: a small number per slot, and the row with the least of it
goes first.

Sources: RRIP as SRRIP-HP in Jaleel et al., "High Performance Cache Replacement Using Re-Reference
Interval Prediction", ISCA 2010, here with ranks counted up instead of down; static ranks as in
"A Frequency-aware Software Cache for Large Recommendation System Embeddings", arXiv 2208.05321.
"""

from collections.abc import Callable
from dataclasses import dataclass

RRIP_NEAR, RRIP_FILLED = 3, 1


@dataclass(frozen=True)
class Policy:
    """How a slot's number is set, from the batch's number and the row's access count.

    Members
    -------
    filled : callable
        (batch, count) to the number of a slot that a row enters.
    used : callable
        (number, batch, count) to the number of a slot whose row a batch needs, once a batch.
    ages : bool
        When a row is chosen, its number is taken off those of all rows that might have been.
    """

    filled: Callable[[int, int], int]
    used: Callable[[int, int, int], int]
    ages: bool = False


POLICIES = {
    # The least recently used batch.
    "lru": Policy(lambda batch, count: batch, lambda number, batch, count: batch),
    "rrip": Policy(lambda batch, count: RRIP_FILLED, lambda number, batch, count: RRIP_NEAR,
                   ages=True),
    # The access counters' count of the row, which outlives its stay in a slot.
    "lfu": Policy(lambda batch, count: count, lambda number, batch, count: count),
    # The count that the row had when it came: a rank that training does not move.
    "freq": Policy(lambda batch, count: count, lambda number, batch, count: number),
    # The most recently used batch: worst on purpose, for tests of the hold window.
    "mru": Policy(lambda batch, count: -batch, lambda number, batch, count: -batch),
}
