"""Replacement policies of the planner: a small number per slot. The row with the least number goes
first, of equals the one whose batch is longest past.

Sources: RRIP after Jaleel et al., "High Performance Cache Replacement Using Re-Reference Interval
Prediction", ISCA 2010, with ranks counted up in place of down and aged by sweeps; ranks by access
counts as in "A Frequency-aware Software Cache for Large Recommendation System Embeddings",
arXiv 2208.05321.
"""

from collections.abc import Callable
from dataclasses import dataclass

MOST = 255  # as counts are kept
RRIP_NEAR, RRIP_FILLED = 3, 1


@dataclass(frozen=True)
class Policy:
    """How a slot's number is set.

    Members
    -------
    filled : callable
        The row's access count to the number of the slot that it enters.
    used : callable
        (number, count) to the number of a slot whose row a batch needs, once a batch.
    swept : callable
        Number to the number after a sweep.
    """

    filled: Callable[[int], int]
    used: Callable[[int, int], int]
    swept: Callable[[int], int] = lambda number: number


def _kept(count):
    return min(count, MOST)


POLICIES = {
    "lru": Policy(lambda count: 0, lambda number, count: 0),
    "rrip": Policy(lambda count: RRIP_FILLED, lambda number, count: RRIP_NEAR,
                   lambda number: max(0, number - 1)),
    # The access counters' count of the row, which outlives its stay in a slot.
    "lfu": Policy(_kept, lambda number, count: _kept(count)),
    # The count that the row had when it came: a rank that training does not move.
    "freq": Policy(_kept, lambda number, count: number),
}
