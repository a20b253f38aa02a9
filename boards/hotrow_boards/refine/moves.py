"""Moves of an annealing: which cells go where, and what then lies where.

A move is a list of cells with their positions behind it. Whatever is where a cell goes comes to
where that cell was.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from .placed import LUT
from .tiles import NONE, PLACES, allowed

_MOST_CELLS = 1024  # of the longest carry chain and what it changes places with
_MOST_TILES = 32
# What changes places.
LUTS, FLIP_FLOPS, BOTH, WHOLE_TILES, BLOCK_RAMS = range(5)
_NEARBY = 3  # tiles from a cell that one is wired to
_TRIES = 3  # of the places of a tile


class Move(NamedTuple):
    """The move that is tried: `count` of `cells` go to `to`; `what` of `ends` change places."""

    count: np.ndarray
    cells: np.ndarray
    to: np.ndarray
    was: np.ndarray
    what: np.ndarray
    ends: np.ndarray
    tiles: np.ndarray


def no_move() -> Move:
    """Room for one."""
    return Move(count=np.zeros(1, np.int32), cells=np.zeros(_MOST_CELLS, np.int32),
                to=np.zeros((_MOST_CELLS, 3), np.int16), was=np.zeros((_MOST_CELLS, 3), np.int16),
                what=np.zeros(2, np.int32), ends=np.zeros(4, np.int32),
                tiles=np.zeros((_MOST_TILES, 2), np.int32))


@njit(inline="always")
def _add(move, cell, column, row, place):
    at = move.count[0]
    move.cells[at] = cell
    move.to[at, 0], move.to[at, 1], move.to[at, 2] = column, row, place
    move.count[0] = at + 1


@njit
def _near(random, wires, weight, position, cell):
    """A position near a cell that this one is wired to, of two such the more urgent one."""
    first = wires.cell_arcs.first[cell]
    count = wires.cell_arcs.first[cell + 1] - first
    arc = wires.cell_arcs.items[first + random.integers(0, count)]
    other = wires.cell_arcs.items[first + random.integers(0, count)]
    if weight[other] > weight[arc]:
        arc = other
    end = wires.arcs[arc, 0] if wires.arcs[arc, 1] == cell else wires.arcs[arc, 1]
    reach = random.integers(0, _NEARBY + 1)
    return (position[end, 0] + random.integers(-reach, reach + 1),
            position[end, 1] + random.integers(-reach, reach + 1))


@njit
def move_cell(random, move, tiles, wires, weight, kind, position, cell, reach, near):
    """A LUT, a flip-flop or a pair goes elsewhere. False if there it may not be."""
    move.count[0] = 0
    tile, place = tiles.tile_of[cell], position[cell, 2]
    if near and wires.cell_arcs.first[cell + 1] > wires.cell_arcs.first[cell]:
        column, row = _near(random, wires, weight, position, cell)
    else:
        column = position[cell, 0] + random.integers(-reach, reach + 1)
        row = position[cell, 1] + random.integers(-reach, reach + 1)
    if column < 0 or row < 0 or column >= tiles.at.shape[0] or row >= tiles.at.shape[1]:
        return False
    other = tiles.at[column, row]
    if other == NONE:
        return False
    there = random.integers(0, PLACES)
    for _ in range(_TRIES):
        there = (there + 3) % PLACES
        if other == tile and there == place:
            continue
        lut, late = tiles.luts[other, there], tiles.flip_flops[other, there]
        if kind[cell] == LUT:
            pairs = tiles.pair[cell] != NONE or (lut != NONE and tiles.pair[lut] != NONE)
            what = BOTH if pairs else LUTS
        else:
            what = BOTH if late != NONE and tiles.paired[late] else FLIP_FLOPS
        if _fits(tiles, tile, place, other, there, what):
            _swap(move, tiles, tile, place, other, there, what)
            return True
    return False


@njit
def _fits(tiles, tile, place, other, there, what):
    if what != FLIP_FLOPS:
        for cell in (tiles.luts[tile, place], tiles.luts[other, there]):
            if cell != NONE and not tiles.free[cell]:
                return False
    if what == LUTS:
        return True
    one, two = tiles.flip_flops[tile, place], tiles.flip_flops[other, there]
    for cell in (one, two):
        if cell != NONE and not tiles.free[cell]:
            return False
    if what == FLIP_FLOPS and one != NONE and tiles.paired[one]:
        return False
    tiles.flip_flops[tile, place], tiles.flip_flops[other, there] = two, one
    fits = allowed(tiles, tile) and allowed(tiles, other)
    tiles.flip_flops[tile, place], tiles.flip_flops[other, there] = one, two
    return fits


@njit
def _swap(move, tiles, tile, place, other, there, what):
    move.what[0] = what
    move.ends[0], move.ends[1], move.ends[2], move.ends[3] = tile, place, other, there
    if what != FLIP_FLOPS:
        _exchange(move, tiles, tiles.luts, tile, place, other, there)
    if what != LUTS:
        _exchange(move, tiles, tiles.flip_flops, tile, place, other, there)


@njit
def _exchange(move, tiles, held, tile, place, other, there):
    if held[tile, place] != NONE:
        _add(move, held[tile, place], tiles.place[other, 0], tiles.place[other, 1], there)
    if held[other, there] != NONE:
        _add(move, held[other, there], tiles.place[tile, 0], tiles.place[tile, 1], place)


@njit
def move_tiles(random, move, tiles, wires, weight, position, tile, reach, near):
    """A tile changes places with another one, or all of a carry chain with as many."""
    move.count[0] = 0
    count = 1
    if tiles.chain[tile] != NONE:
        tile = tiles.chain[tile]
        count = tiles.length[tile]
    column = tiles.place[tile, 0] + random.integers(-reach, reach + 1)
    row = tiles.place[tile, 1] + random.integers(-reach, reach + 1)
    guide = tiles.luts[tile, random.integers(0, PLACES)]
    if near and guide != NONE and wires.cell_arcs.first[guide + 1] > wires.cell_arcs.first[guide]:
        column, row = _near(random, wires, weight, position, guide)
    if column < 0 or row < 0 or column + count > tiles.at.shape[0] or row >= tiles.at.shape[1]:
        return False
    if row == tiles.place[tile, 1] and abs(column - tiles.place[tile, 0]) < count:
        return False
    for step in range(count):
        other = tiles.at[column + step, row]
        if other == NONE or tiles.chain[other] != NONE:
            return False
        move.tiles[step, 0] = tiles.at[tiles.place[tile, 0] + step, tiles.place[tile, 1]]
        move.tiles[step, 1] = other
    for step in range(count):
        for side in range(2):
            here, there = move.tiles[step, side], move.tiles[step, 1 - side]
            for place in range(PLACES):
                for held in (tiles.luts, tiles.flip_flops):
                    if held[here, place] != NONE:
                        _add(move, held[here, place], tiles.place[there, 0],
                             tiles.place[there, 1], place)
            if tiles.writer[here] != NONE:
                writer = tiles.writer[here]
                _add(move, writer, tiles.place[there, 0], tiles.place[there, 1],
                     position[writer, 2])
    move.what[0], move.what[1] = WHOLE_TILES, count
    return True


@njit
def move_ram(random, move, tiles):
    """Two block RAMs change places, or one goes to a free site."""
    move.count[0] = 0
    one, other = random.integers(0, len(tiles.rams)), random.integers(0, len(tiles.rams))
    for here, there in ((one, other), (other, one)):
        if tiles.rams[here] != NONE and here != there:
            _add(move, tiles.rams[here], tiles.ram_places[there, 0], tiles.ram_places[there, 1], 0)
    move.what[0] = BLOCK_RAMS
    move.ends[0], move.ends[2] = one, other
    return move.count[0] > 0


@njit
def settle(move, tiles):
    """The move stands: tiles hold what it brought."""
    what = move.what[0]
    tile, place, other, there = move.ends[0], move.ends[1], move.ends[2], move.ends[3]
    if what == BLOCK_RAMS:
        tiles.rams[tile], tiles.rams[other] = tiles.rams[other], tiles.rams[tile]
        return
    if what == WHOLE_TILES:
        _settle_tiles(move, tiles)
    if what == LUTS or what == BOTH:
        held = tiles.luts
        held[tile, place], held[other, there] = held[other, there], held[tile, place]
    if what == FLIP_FLOPS or what == BOTH:
        held = tiles.flip_flops
        held[tile, place], held[other, there] = held[other, there], held[tile, place]
    for at in range(move.count[0]):
        tiles.tile_of[move.cells[at]] = tiles.at[move.to[at, 0], move.to[at, 1]]


@njit
def _settle_tiles(move, tiles):
    count = move.what[1]
    first, onto = move.tiles[0, 0], move.tiles[0, 1]
    chained = tiles.chain[first] != NONE
    for step in range(count):
        one, other = move.tiles[step, 0], move.tiles[step, 1]
        for place in range(PLACES):
            for held in (tiles.luts, tiles.flip_flops):
                held[one, place], held[other, place] = held[other, place], held[one, place]
        for each in (tiles.writer, tiles.polarity):
            each[one], each[other] = each[other], each[one]
        if chained:
            tiles.chain[one], tiles.chain[other] = NONE, onto
    if chained:
        tiles.length[first], tiles.length[onto] = NONE, count
