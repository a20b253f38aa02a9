"""Replacement policies of the planner, a small number per slot.

The victim is the row with the lowest number; on a tie, the row that no batch has used for longest.

Sources: RRIP after Jaleel et al., "High Performance Cache Replacement Using Re-Reference Interval
Prediction", ISCA 2010, with intervals that count up and age by sweeps; ranks by access counts as in
"A Frequency-aware Software Cache for Large Recommendation System Embeddings", arXiv 2208.05321.
"""

from collections.abc import Callable
from dataclasses import dataclass

from hotrow_rtl.config import SLOT_NUMBER_WIDTH

MOST = (1 << SLOT_NUMBER_WIDTH) - 1
RRIP_NEAR, RRIP_FILLED = 3, 1


@dataclass(frozen=True)
class Policy:
    """Updates of a slot's number.

    Attributes
    ----------
    filled : callable
        Access count of a row to the number of the slot that it fills.
    used : callable
        (number, count) to the number of a slot that a batch uses, once per batch.
    swept : callable
        Number to the number after a sweep.
    """

    filled: Callable[[int], int]
    used: Callable[[int, int], int]
    swept: Callable[[int], int] = lambda number: number


def _saturated(count):
    return min(count, MOST)


POLICIES = {
    "lru": Policy(lambda count: 0, lambda number, count: 0),
    "rrip": Policy(lambda count: RRIP_FILLED, lambda number, count: RRIP_NEAR,
                   lambda number: max(0, number - 1)),
    # The row's current access count, which the counters keep after an eviction.
    "lfu": Policy(_saturated, lambda number, count: _saturated(count)),
    # The row's access count when it filled the slot: a rank that later use does not change.
    "freq": Policy(_saturated, lambda number, count: number),
}
