"""How late a design is, as nextpnr estimates it before routing.

Source of the wire delays: `predictDelay` of nextpnr's ECP5 architecture, speed grade 8. It lets a
wire from a LUT to one of the same tile take no time, to have them placed so; routed, it takes
`DIRECT`.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from .wires import FROM_FLIP_FLOP, FROM_LUT, INSIDE, Wires

STEP = 62  # ps; what an arc takes for a tile, if it is a long one
_NEAR = 5  # tiles, that take two steps each
_BASE = 6  # steps
DIRECT = 450  # ps
_FAR = 1 << 30
_EVER = _FAR // 2  # an arc with as much to spare is on no path
_LEAST, _MOST, _ANY = -0.6, 50, 1e9  # of a share: less and more of what an arc takes; any time
_CONTACT = 300  # ps that every arc counts for, besides its own, where a path's time is shared out


@njit(inline="always")
def wire_delay(way, one, other, direct):
    """Of an arc from position `one` to position `other`, in ps."""
    if way == INSIDE:
        return 0
    across, along = abs(one[0] - other[0]), abs(one[1] - other[1])
    if across == 0 and along == 0:
        if way == FROM_FLIP_FLOP and one[2] == other[2]:
            return direct
        if way == FROM_LUT and one[2] != 1 and one[2] != 6:
            return direct
    return STEP * (_BASE + max(across - _NEAR, 0) + max(along - _NEAR, 0)
                    + 2 * (min(across, _NEAR) + min(along, _NEAR)))


class Timing(NamedTuple):
    """Of every arc: ps to spare on its worst path, and what the wires of that path take."""

    slack: np.ndarray
    wire_time: np.ndarray
    worst: int


def time_arcs(wires: Wires, position: np.ndarray, period: int, direct: int = DIRECT) -> Timing:
    """Measure every arc, and tell what it has to spare.

    Parameters
    ----------
    wires : Wires
        The delays of its arcs are set.
    position : ndarray of int16, (cells, 3)
    period : int
        ps from one clock edge to the next.
    direct : int
        ps from a LUT to one beside it; 0 for nextpnr's own estimate.
    """
    slack = np.full(len(wires.arcs), _FAR, np.int32)
    wire_time = np.ones(len(wires.arcs), np.int32)
    worst = _time(wires, position, period, direct, slack, wire_time)
    return Timing(slack, wire_time, worst)


def shares(wires: Wires, timing: Timing) -> np.ndarray:
    """What each arc may take, in ps, if the wires of its worst path share the time that they have
    as they share the time that they take."""
    delay = wires.arcs[:, 3]
    scale = np.clip(timing.slack / timing.wire_time, _LEAST, _MOST)
    return np.where(timing.slack >= _EVER, _ANY, delay + (delay + _CONTACT) * scale)


@njit
def _time(wires, position, period, direct, slack, wire_time):
    arcs = wires.arcs
    for arc in range(len(arcs)):
        arcs[arc, 3] = wire_delay(
            arcs[arc, 2], position[arcs[arc, 0]], position[arcs[arc, 1]], direct)
    nets = len(wires.launch)
    arrival, before = np.zeros(nets, np.int32), np.zeros(nets, np.int32)
    required, behind = np.zeros(nets, np.int32), np.zeros(nets, np.int32)
    for net in wires.order:
        latest, on_wires = wires.launch[net], 0
        for at in range(wires.into.first[net], wires.into.first[net + 1]):
            edge = wires.into.items[at]
            arc = wires.edge_arc[edge]
            source = wires.arc_net[arc]
            comes = arrival[source] + arcs[arc, 3] + wires.edge_delay[edge]
            if comes > latest:
                latest, on_wires = comes, before[source] + arcs[arc, 3] + _CONTACT
        arrival[net], before[net] = latest, on_wires
    worst = _FAR
    for net in wires.order[::-1]:
        earliest, on_wires = _FAR, 0
        for at in range(wires.net_arcs.first[net], wires.net_arcs.first[net + 1]):
            arc = wires.net_arcs.items[at]
            needed, more = _FAR, 0
            if wires.setup[arc] >= 0:
                needed = period - wires.setup[arc]
            for place in range(wires.through.first[arc], wires.through.first[arc + 1]):
                edge = wires.through.items[place]
                follows = wires.edge_net[edge]
                if required[follows] - wires.edge_delay[edge] < needed:
                    needed = required[follows] - wires.edge_delay[edge]
                    more = behind[follows]
            needed -= arcs[arc, 3]
            more += arcs[arc, 3] + _CONTACT
            slack[arc] = needed - arrival[net]
            wire_time[arc] = before[net] + more
            if needed < earliest:
                earliest, on_wires = needed, more
        required[net], behind[net] = earliest, on_wires
        if earliest < _EVER:
            worst = min(worst, earliest - arrival[net])
    return worst
