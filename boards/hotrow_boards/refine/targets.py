"""Where cells would be if late arcs pulled much harder."""

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import cg

from .placed import OTHER
from .timing import Timing
from .wires import Wires

# Urgent is what has less to spare than this, in ps; it pulls by the square of what it lacks of it,
# up to a limit.
_ENOUGH, _MOST_URGENT, _URGENT_PULL = 1500, 6, 2
_LARGE, _LARGE_SLACK = 200, 500  # sinks of a net that pulls only where it has less ps to spare
_MOST_SINKS, _MOST_URGENT_SINKS = 8, 64  # among which a net's pull is shared out
_HELD = 100.0  # pull on what does not move, towards where it is; of all else it is 1
_SHORT = 2.0  # tiles; what is shorter pulls no harder
_ROUNDS = 3


def targets(kind: np.ndarray, position: np.ndarray, wires: Wires, timing: Timing) -> np.ndarray:
    """Columns and rows of all cells where all pulls are in balance, each held where it is.

    Cells that belong together cannot follow one another, as each would first be far from the rest:
    so all of them are told at once where to go. The sum of lengths is least where that of squares,
    over the lengths before, is.

    Parameters
    ----------
    kind, position : ndarray, by cell
    wires : Wires
    timing : Timing

    Returns
    -------
    ndarray of float32, (cells, 2)
    """
    fan_out = np.diff(wires.net_arcs.first)[wires.arc_net]
    source, sink = wires.arcs[:, 0], wires.arcs[:, 1]
    taken = (source != sink) & ((fan_out < _LARGE) | (timing.slack < _LARGE_SLACK))
    source, sink, fan_out = source[taken], sink[taken], fan_out[taken]
    urgency = np.clip(1 - timing.slack[taken] / _ENOUGH, 0, _MOST_URGENT)
    pulls = (1 / np.minimum(fan_out, _MOST_SINKS)
             + _URGENT_PULL * urgency ** 2 / np.sqrt(np.minimum(fan_out, _MOST_URGENT_SINKS)))
    held = np.where(kind == OTHER, _HELD, 1.0)
    cells = len(kind)
    target = np.empty((cells, 2), np.float32)
    for axis in range(2):
        here = position[:, axis].astype(float)
        there = here.copy()
        for _ in range(_ROUNDS):
            lengths = np.maximum(np.abs(there[source] - there[sink]), _SHORT)
            between = sparse.coo_array((pulls / lengths, (source, sink)), (cells, cells))
            between = (between + between.T).tocsr()
            anchor = held / np.maximum(np.abs(there - here), _SHORT)
            balance = (sparse.diags_array(between.sum(axis=1) + anchor) - between).tocsr()
            there, _ = cg(balance, anchor * here, x0=there, rtol=1e-4, maxiter=300,
                          M=sparse.diags_array(1 / balance.diagonal()))
        target[:, axis] = there
    return target
