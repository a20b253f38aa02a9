"""How many nets each tile takes in: where they are many the router finds too few wires."""

from typing import NamedTuple

import numpy as np
from numba import njit

from .placed import FLIP_FLOP, LUT, RAM_WRITE
from .wires import INSIDE

# Nets of a tile beyond which each costs more than the one before. In a design whose routing did not
# end, tiles of 24 and more had on average three to seven times the contested wires of those of 16.
ROOM = 20


class Crowd(NamedTuple):
    """`brings` is how many nets a cell takes into its tile, those that others there take in as well
    counted in parts; `nets` how many that makes in each column and row; `price` what an excess of
    one costs, in tiles of wire."""

    brings: np.ndarray
    nets: np.ndarray
    price: float


def crowd_of(wires, kind, position, shape, price) -> Crowd:
    """As things lie; where cells have moved since it is an estimate.

    Parameters
    ----------
    wires : Wires
    kind, position : ndarray
        Of the placement.
    shape : (int, int)
        Columns and rows.
    price : float
    """
    sinks = wires.arcs[:, 1]
    come = np.isin(kind[sinks], (LUT, FLIP_FLOP, RAM_WRITE)) & (wires.arcs[:, 2] != INSIDE)
    sinks, nets = sinks[come], wires.arc_net[come].astype(np.int64)
    tile = position[sinks, 0].astype(np.int64) * shape[1] + position[sinks, 1]
    _, which, times = np.unique(tile * len(wires.launch) + nets, return_inverse=True,
                                return_counts=True)
    part = 1 / times[which]
    return Crowd(
        brings=np.bincount(sinks, part, len(kind)).astype(np.float32),
        nets=np.bincount(tile, part, shape[0] * shape[1]).reshape(shape).astype(np.float32),
        price=price)


@njit(inline="always")
def bring(crowd, cell, place, sign):
    """Take a cell to a place, or with a sign of -1 from it; returns what that costs more."""
    nets = crowd.nets[place[0], place[1]]
    after = nets + sign * crowd.brings[cell]
    crowd.nets[place[0], place[1]] = after
    return crowd.price * (max(after - ROOM, 0.0) ** 2 - max(nets - ROOM, 0.0) ** 2)
