"""Refine a placement: what is urgent is told anew as the annealing cools down."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import cg

from ..ram_sites import ram_sites
from .anneal import Costs, anneal, draw_boxes
from .moves import no_move
from .placed import FLIP_FLOP, LUT, OTHER, Placed
from .tiles import NONE, tiles_of
from .timing import Timing, shares, time_arcs
from .wires import Wires, wires_of

STAGES = 26
MOVES = 1000  # of all stages, for each cell
_HOT, _COLD = 1.2, 0.02  # temperature of the first stage, and of the last but one
_FAR, _NEAR = 20.0, 2.0  # reach, likewise
_PULLS = (1, 1, 0.8, 0.8, 0.6, 0.6, 0.4, 0.4, 0.2, 0.2)  # of the first stages
_STEP = 62  # ps that an arc takes for a tile: so what it is late by and its length weigh as much
_PATIENCE = 4.0  # how much more an arc weighs that has been 1 ns late in all stages
_URGENT = 300  # ps to spare
_LATEST = 8000  # ps beyond which it counts no more
# What the router is asked for, of the estimate: it goes on until every path keeps to that.
_ROUTED = 0.95


def refine(path: Path, out: Path, seed: int, period: int, block_rams: int,
           say: Callable[[str], None] = lambda text: None) -> dict:
    """Shorten the wires of a placement, first of all those that are late.

    Parameters
    ----------
    path, out : Path
        Placed by nextpnr, and where the refined placement goes. With it goes what router2 is asked
        for, as it ends only when all paths keep to that: what is estimated, less a twentieth.
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
        return {"wire_length": int(draw_boxes(wires.net_cells, position, box)),
                "mhz": round(1e6 / (period - timing.worst), 1)}

    timing = time_arcs(wires, position, period)
    before = figures(timing)
    for stage in range(STAGES):
        began, progress = time.monotonic(), stage / (STAGES - 1)
        late = np.clip(-timing.slack, 0, _LATEST) / 1000
        lateness += late / STAGES
        pull = float(_PULLS[stage]) if stage < len(_PULLS) else 0.0
        costs = Costs(
            box=box, share=shares(wires, timing).astype(np.float32),
            weight=((1 + late + _PATIENCE * lateness) / _STEP).astype(np.float32),
            target=_targets(kind, position, wires, timing) if pull
            else position[:, :2].astype(np.float32), pull=pull)
        urgent = timing.slack < _URGENT
        urgent = np.unique(wires.arcs[urgent, :2])
        last = stage == STAGES - 1
        possible, made = anneal(
            moves, 1e-6 if last else _HOT * (_COLD / _HOT) ** progress,
            round(_FAR * (_NEAR / _FAR) ** progress), random, move, wires, tiles, kind,
            position, costs, _along(position, np.flatnonzero(alone)),
            urgent[alone[urgent]].astype(np.int32))
        timing = time_arcs(wires, position, period)
        shown = figures(timing)
        say(f"refinement {stage + 1} of {STAGES}: wire length {shown['wire_length']:,}, "
            f"{shown['mhz']} MHz, {np.count_nonzero((timing.slack < 0) & (wires.setup >= 0)):,} "
            f"ends late, {made:,} of {possible:,} moves, {time.monotonic() - began:.1f} s")
    rams = _rams(tiles, block_rams)
    after = figures(timing)
    asked = min(1e12 / period, _ROUTED * 1e6 * after["mhz"])
    placed.write(out, rams, router="router2", target_freq=f"{asked:.6f}")
    return {"before": before, "after": after}


def _rams(tiles, block_rams):
    """nextpnr's name of where each block RAM is."""
    return {int(cell): name
            for cell, (*_, name) in zip(tiles.rams, ram_sites(block_rams)) if cell != NONE}


def _along(position, cells):
    """Cells in an order in which one is near the next."""
    column, row = position[cells, 0] // 6, position[cells, 1] // 6
    return cells[np.lexsort((np.where(row % 2, -column, column), row))].astype(np.int32)


def _targets(kind: np.ndarray, position: np.ndarray, wires: Wires, timing: Timing) -> np.ndarray:
    """Where cells would be if late arcs pulled much harder, each held where it is.

    Cells that belong together cannot follow one another, as each would first be far from the rest:
    so all of them are told at once where to go. The sum of lengths, as that of squares over the
    lengths before, is least where all pulls are in balance.
    """
    fan_out = np.diff(wires.net_arcs.first)[wires.arc_net]
    source, sink = wires.arcs[:, 0], wires.arcs[:, 1]
    taken = (source != sink) & ((fan_out < 200) | (timing.slack < 500))
    source, sink, fan_out = source[taken], sink[taken], fan_out[taken]
    urgency = np.clip((1500 - np.minimum(timing.slack[taken], 1500)) / 1500, 0, 6)
    pulls = 1 / np.minimum(fan_out, 8) + 2 * urgency ** 2 / np.sqrt(np.minimum(fan_out, 64))
    held = np.where(kind == OTHER, 100.0, 1.0)
    cells = len(kind)
    target = np.empty((cells, 2), np.float32)
    for axis in range(2):
        here = position[:, axis].astype(float)
        there = here.copy()
        for _ in range(3):
            lengths = np.maximum(np.abs(there[source] - there[sink]), 2)
            between = sparse.coo_array((pulls / lengths, (source, sink)), (cells, cells))
            between = (between + between.T).tocsr()
            anchor = held / np.maximum(np.abs(there - here), 2)
            balance = (sparse.diags_array(between.sum(axis=1) + anchor) - between).tocsr()
            there, _ = cg(balance, anchor * here, x0=there, rtol=1e-4, maxiter=300,
                          M=sparse.diags_array(1 / balance.diagonal()))
        target[:, axis] = there
    return target
