"""Refine a placement: what is urgent is told anew as the annealing cools down."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..routing import BRISK
from .placed import Placed
from .refinement import Refinement
from .repair import repair
from .targets import targets

STAGES = 26
MOVES = 1000  # of all stages, for each cell
_HOT, _COLD = 1.2, 0.02  # temperature of the first stage, and of the last but one
_FAR, _NEAR = 20.0, 2.0  # reach, likewise
_PULLS = (1, 1, 0.8, 0.8, 0.6, 0.6, 0.4, 0.4, 0.2, 0.2)  # of the first stages
_URGENT = 300  # ps to spare
# Of all ends of paths, and at least: if more are late, only so many count as late.
_FEW, _FEWEST = 0.002, 100
# What the router is asked for, of the estimate, whose wires are a little long: it goes on until
# every path keeps to that.
_ROUTED = 1.03


def refine(path: Path, out: Path, seed: int, period: int, block_rams: int,
           say: Callable[[str], None] = lambda text: None) -> dict:
    """Shorten the wires of a placement, first of all those that are late.

    Parameters
    ----------
    path, out : Path
        Placed by nextpnr, and where the refined placement goes. With it goes the clock that router2
        is asked for.
    seed : int
    period : int
        ps from clock edge to clock edge, that every path is to keep to; of one clock.
    block_rams : int
        Of the device.
    say : callable
        Takes a line of progress.

    Returns
    -------
    dict
        wire_length (sum of half perimeters, in tiles) and mhz (estimated), `before` and `after`.
    """
    placed = Placed(path)
    refinement = Refinement(placed, seed, period, block_rams)
    before = refinement.figures()
    few = max(round(_FEW * np.count_nonzero(refinement.ends)), _FEWEST)
    refinement.begin(STAGES)
    for stage in range(STAGES):
        began, progress = time.monotonic(), stage / (STAGES - 1)
        counted = refinement.worst_first(few)
        pull = float(_PULLS[stage]) if stage < len(_PULLS) else 0.0
        last = stage == STAGES - 1
        possible, made = refinement.anneal(
            MOVES * len(placed.kind) // STAGES,
            1e-6 if last else _HOT * (_COLD / _HOT) ** progress,
            round(_FAR * (_NEAR / _FAR) ** progress), counted, refinement.all_alone(),
            refinement.urgent(counted, _URGENT), pull=pull,
            wanted=targets(placed.kind, placed.position, refinement.wires, counted)
            if pull else None)
        say(f"refinement {stage + 1} of {STAGES}: {_told(refinement)}, {made:,} of {possible:,} "
            f"moves, {time.monotonic() - began:.1f} s")
    began = time.monotonic()
    repair(refinement)
    say(f"repair: {_told(refinement)}, {time.monotonic() - began:.1f} s")
    after = refinement.figures()
    asked = min(1e12 / period, _ROUTED * 1e6 * after["mhz"])
    refinement.write(out, router="router2", target_freq=f"{asked:.6f}", **BRISK)
    return {"before": before, "after": after}


def _told(refinement):
    late = np.count_nonzero((refinement.timing.slack < 0) & refinement.ends)
    return (f"wire length {refinement.wire_length:,}, {refinement.mhz:.1f} MHz, {late:,} ends late")
