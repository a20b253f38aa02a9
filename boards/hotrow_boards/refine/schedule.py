"""Refine a placement: what is urgent is told anew as the annealing cools down."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..ram_sites import ram_sites
from ..routing import BRISK
from .anneal import Costs, anneal, draw_boxes
from .crowd import crowd_of
from .moves import no_move
from .placed import FLIP_FLOP, LUT, Placed, along
from .targets import targets
from .tiles import NONE, tiles_of
from .timing import STEP, shares, time_arcs
from .wires import wires_of

STAGES = 26
MOVES = 1000  # of all stages, for each cell
_HOT, _COLD = 1.2, 0.02  # temperature of the first stage, and of the last but one
_FAR, _NEAR = 20.0, 2.0  # reach, likewise
_PULLS = (1, 1, 0.8, 0.8, 0.6, 0.6, 0.4, 0.4, 0.2, 0.2)  # of the first stages
_PATIENCE = 16.0  # how much more an arc weighs that has been 1 ns late in all stages
_CROWDED = 0.2  # tiles of wire, of a net too many in a tile; of n as many times n squared
_URGENT = 300  # ps to spare
# Of all ends of paths, and at least: if more are late, only so many count as late.
_FEW, _FEWEST = 0.002, 100
_LATEST = 8000  # ps beyond which it counts no more
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
    wires, tiles = wires_of(placed), tiles_of(placed, block_rams)
    kind, position = placed.kind, placed.position
    alone = tiles.free & ~tiles.paired & ((kind == LUT) | (kind == FLIP_FLOP))
    box = np.zeros((len(wires.launch), 4), np.int16)
    lateness = np.zeros(len(wires.arcs))  # of all stages, in ns
    move, random = no_move(), np.random.default_rng(seed)
    moves = MOVES * len(kind) // STAGES

    def figures(timing):
        """What there is to tell; the boxes are drawn for it."""
        return {"wire_length": int(draw_boxes(wires.net_cells, position, box)),
                "mhz": round(1e6 / (period - timing.worst), 1)}

    def worst_first(timing):
        """With as much to spare that few are late: those on which all others wait."""
        ends = np.sort(timing.slack[wires.setup >= 0])
        few = min(max(round(_FEW * len(ends)), _FEWEST), len(ends) - 1)
        return timing._replace(slack=timing.slack - min(0, ends[few]))

    timing = time_arcs(wires, position, period)
    before = figures(timing)
    for stage in range(STAGES):
        began, progress = time.monotonic(), stage / (STAGES - 1)
        counted = worst_first(timing)
        late = np.clip(-counted.slack, 0, _LATEST) / 1000
        lateness += late / STAGES
        pull = float(_PULLS[stage]) if stage < len(_PULLS) else 0.0
        costs = Costs(
            box=box, share=shares(wires, counted).astype(np.float32),
            # A tile too far costs as much as a tile of wire, and more the later it is.
            weight=((1 + late + _PATIENCE * lateness) / STEP).astype(np.float32),
            target=targets(kind, position, wires, counted) if pull
            else position[:, :2].astype(np.float32), pull=pull,
            crowd=crowd_of(wires, kind, position, tiles.at.shape, _CROWDED))
        urgent = np.unique(wires.arcs[counted.slack < _URGENT, :2])
        last = stage == STAGES - 1
        possible, made = anneal(
            moves, 1e-6 if last else _HOT * (_COLD / _HOT) ** progress,
            round(_FAR * (_NEAR / _FAR) ** progress), random, move, wires, tiles, kind,
            position, costs, along(position, np.flatnonzero(alone)).astype(np.int32),
            urgent[alone[urgent]].astype(np.int32))
        timing = time_arcs(wires, position, period)
        shown = figures(timing)
        say(f"refinement {stage + 1} of {STAGES}: wire length {shown['wire_length']:,}, "
            f"{shown['mhz']} MHz, {np.count_nonzero((timing.slack < 0) & (wires.setup >= 0)):,} "
            f"ends late, {made:,} of {possible:,} moves, {time.monotonic() - began:.1f} s")
    after = figures(timing)
    asked = min(1e12 / period, _ROUTED * 1e6 * after["mhz"])
    rams = {cell: name for cell, (*_, name) in zip(tiles.rams, ram_sites(block_rams))
            if cell != NONE}
    placed.write(out, rams, router="router2", target_freq=f"{asked:.6f}", **BRISK)
    return {"before": before, "after": after}
