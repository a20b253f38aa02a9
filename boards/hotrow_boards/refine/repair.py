"""Place anew the few cells for which the clock waits in the end.

In a placement that is refined a handful of paths may be late whose cells lie far apart, each where
its neighbours hold it. They alone are annealed from a high temperature, and what is late is told
anew so often that there is always one path at least that the moves are for.
"""

from .refinement import Refinement

ROUNDS = 300
_MOVES = 20_000  # of a round
_HOT, _COLD = 10.0, 0.2  # temperature of the first round, and of the last
_REACH = 40
_FEW = 10  # ends that count as late
_URGENT = 600  # ps to spare
_IMPATIENCE = 4.0


def repair(refinement: Refinement) -> None:
    """Move what is on the latest paths; of all rounds the placement that is the soonest stays.

    Parameters
    ----------
    refinement : Refinement
        It is changed, and takes no further rounds.
    """
    best, soonest = refinement.places(), refinement.mhz
    refinement.begin(ROUNDS)
    for each in range(ROUNDS):
        counted = refinement.worst_first(_FEW)
        urgent = refinement.urgent(counted, _URGENT)
        if refinement.timing.worst >= 0 or not len(urgent):
            break
        refinement.anneal(_MOVES, _HOT * (_COLD / _HOT) ** (each / (ROUNDS - 1)), _REACH, counted,
                          urgent, urgent, impatience=_IMPATIENCE)
        if refinement.mhz > soonest:
            best, soonest = refinement.places(), refinement.mhz
    refinement.put_back(best)
