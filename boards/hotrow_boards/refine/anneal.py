"""Simulated annealing at one temperature."""

from typing import NamedTuple

import numpy as np
from numba import njit

from .crowd import Crowd, bring
from .moves import Move, move_cell, move_ram, move_tiles, settle
from .timing import DIRECT, wire_delay

_TILE_MOVES, _RAM_MOVES = 0.03, 0.0005  # of all moves
_NEAR_MOVES = 0.5  # of those go near a cell that the moved one is wired to
_URGENT_MOVES = 0.25  # of those of single cells are of urgent ones
_LARGE = 12  # cells; the box of a net with more is looked at before it is drawn again


class Costs(NamedTuple):
    """What makes a placement good: short nets, few of them in a tile, and arcs that keep to their
    share of a cycle.

    `box` holds the columns and rows from which to which each net reaches. Each ps that an arc takes
    beyond its `share` costs `weight`, in tiles. `target` is where cells are wanted, `pull` what
    each tile of distance from there costs.
    """

    box: np.ndarray
    share: np.ndarray
    weight: np.ndarray
    target: np.ndarray
    pull: float
    crowd: Crowd


@njit
def draw_boxes(net_cells, position, box):
    """Set the box of every net; returns the wire length, the sum of their half perimeters."""
    total = 0
    for net in range(len(box)):
        total += _draw(net_cells, position, box, net)
    return total


@njit(inline="always")
def _draw(net_cells, position, box, net):
    """Set the box of a net; returns its half perimeter."""
    left, right, low, high = 9999, -1, 9999, -1
    for at in range(net_cells.first[net], net_cells.first[net + 1]):
        cell = net_cells.items[at]
        column, row = position[cell, 0], position[cell, 1]
        left, right = min(left, column), max(right, column)
        low, high = min(low, row), max(high, row)
    box[net, 0], box[net, 1], box[net, 2], box[net, 3] = left, right, low, high
    return right - left + high - low


@njit(inline="always")
def _unmoved(wires, box, net, was, to):
    """Whether a large net keeps its box, as the cell moves within."""
    left, right, low, high = box[net, 0], box[net, 1], box[net, 2], box[net, 3]
    return (wires.net_cells.first[net + 1] - wires.net_cells.first[net] > _LARGE
            and left < was[0] < right and low < was[1] < high
            and left <= to[0] <= right and low <= to[1] <= high)


@njit(nogil=True)  # placements are refined side by side
def anneal(moves, temperature, reach, random, move: Move, wires, tiles, kind, position, costs,
           objects, urgent):
    """Try so many moves; those that cost less are made, and of others the fewer the more they cost.

    Parameters
    ----------
    moves : int
    temperature : float
        Cost, in tiles, of which one in e is made.
    reach : int
        Tiles that a move goes at most, but for those to a cell's neighbours.
    random : Generator
    move, wires, tiles, kind, position, costs
        Of the placement, which is changed in place.
    objects, urgent : ndarray of int32
        Cells that move alone, in the order in which they are tried; and those that are late.

    Returns
    -------
    int, int
        Moves that were possible, and those made.
    """
    nets_seen = np.zeros(len(costs.box), np.int32)
    arcs_seen = np.zeros(len(wires.arcs), np.int32)
    nets = np.empty(len(costs.box), np.int32)
    boxes = np.empty((len(costs.box), 4), np.int16)
    arcs, delays = np.empty(len(wires.arcs), np.int32), np.empty(len(wires.arcs), np.int32)
    at = random.integers(0, len(objects))
    possible = made = 0
    for _ in range(moves):
        which, near = random.random(), random.random() < _NEAR_MOVES
        if which < _TILE_MOVES:
            can = move_tiles(random, move, tiles, wires, costs.weight, position,
                             random.integers(0, len(tiles.place)), reach, near)
        elif which < _TILE_MOVES + _RAM_MOVES:
            can = move_ram(random, move, tiles)
        else:
            if random.random() < _URGENT_MOVES and len(urgent):
                cell = urgent[random.integers(0, len(urgent))]
            else:  # one after the other: neighbours are near in memory, too
                cell = objects[at]
                at = at + 1 if at + 1 < len(objects) else 0
            can = move_cell(random, move, tiles, wires, costs.weight, kind, position, cell,
                            reach, near)
        if not can:
            continue
        possible += 1

        # What changes with it.
        changed_nets = changed_arcs = 0
        pulled = crowded = 0.0
        for each in range(move.count[0]):
            cell = move.cells[each]
            to, was = move.to[each], move.was[each]
            was[0], was[1], was[2] = position[cell, 0], position[cell, 1], position[cell, 2]
            for place in range(wires.cell_arcs.first[cell], wires.cell_arcs.first[cell + 1]):
                arc = wires.cell_arcs.items[place]
                if arcs_seen[arc] != possible:
                    arcs_seen[arc] = possible
                    arcs[changed_arcs] = arc
                    changed_arcs += 1
            if to[0] == was[0] and to[1] == was[1]:
                continue
            crowded += bring(costs.crowd, cell, was, -1) + bring(costs.crowd, cell, to, 1)
            pulled += (abs(to[0] - costs.target[cell, 0]) - abs(was[0] - costs.target[cell, 0])
                       + abs(to[1] - costs.target[cell, 1]) - abs(was[1] - costs.target[cell, 1]))
            for place in range(wires.cell_nets.first[cell], wires.cell_nets.first[cell + 1]):
                net = wires.cell_nets.items[place]
                if nets_seen[net] != possible and not _unmoved(wires, costs.box, net, was, to):
                    nets_seen[net] = possible
                    nets[changed_nets] = net
                    changed_nets += 1
        for each in range(move.count[0]):
            position[move.cells[each]] = move.to[each]

        cost = costs.pull * pulled + crowded
        for each in range(changed_arcs):
            arc = arcs[each]
            source, sink = wires.arcs[arc, 0], wires.arcs[arc, 1]
            delays[each] = wire_delay(
                wires.arcs[arc, 2], position[source], position[sink], DIRECT)
            share = costs.share[arc]
            cost += costs.weight[arc] * (max(delays[each] - share, 0.0)
                                         - max(wires.arcs[arc, 3] - share, 0.0))
        for each in range(changed_nets):
            net = nets[each]
            box = costs.box[net]
            boxes[each] = box
            before = box[1] - box[0] + box[3] - box[2]
            cost += _draw(wires.net_cells, position, costs.box, net) - before

        if cost <= 0 or random.random() < np.exp(-cost / temperature):
            made += 1
            for each in range(changed_arcs):
                wires.arcs[arcs[each], 3] = delays[each]
            settle(move, tiles)
        else:
            for each in range(move.count[0]):
                cell, to, was = move.cells[each], move.to[each], move.was[each]
                position[cell] = was
                if to[0] != was[0] or to[1] != was[1]:
                    bring(costs.crowd, cell, to, -1)
                    bring(costs.crowd, cell, was, 1)
            for each in range(changed_nets):
                costs.box[nets[each]] = boxes[each]
    return possible, made
