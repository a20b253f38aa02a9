"""What lies in which tile of logic, and what may.

A tile has eight places, each a LUT and a flip-flop. The flip-flops of a tile share clock and reset,
the two of a slice their enable as well, and all of them the polarities of a LUT RAM beside them. A
flip-flop fed by the LUT of its place (`pair`) stays with it. LUT RAMs, and the carry chains of a
row of tiles, move with their tiles only.

Source: `slices_compatible` of nextpnr's ECP5 architecture; Lattice FPGA-TN-02206.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from ..ram_sites import ram_sites
from .placed import BLOCK_RAM, FLIP_FLOP, LUT, RAM_WRITE, Placed

PLACES = 8
NONE = -1


class Tiles(NamedTuple):
    """Tiles by number, with the cells that they hold, and cells with what they share.

    `at` is the tile in each column and row, `place` the column and row of each. `writer` is the
    cell that writes a tile's LUT RAM, `polarity` what that asks of flip-flops, `chain` the first
    tile of its carry chain and `length` the tiles of a chain that begins. `rams` are the block RAMs
    by site and `ram_places` the column and row of these.

    By cell: `tile_of`; whether it is `free` to leave its tile; of a LUT the flip-flop that it feeds
    in its place (`pair`), of a flip-flop whether it is `paired`; and by number what a flip-flop has
    for `enable`, for clock and `reset`, and the `edges` and polarities of these.
    """

    at: np.ndarray
    place: np.ndarray
    luts: np.ndarray
    flip_flops: np.ndarray
    writer: np.ndarray
    polarity: np.ndarray
    chain: np.ndarray
    length: np.ndarray
    rams: np.ndarray
    ram_places: np.ndarray
    tile_of: np.ndarray
    free: np.ndarray
    pair: np.ndarray
    paired: np.ndarray
    enable: np.ndarray
    reset: np.ndarray
    edges: np.ndarray


def tiles_of(placed: Placed, block_rams: int) -> Tiles:
    """Where the cells of a placement are.

    Parameters
    ----------
    placed : Placed
    block_rams : int
        Of the device.
    """
    kind, position = placed.kind, placed.position
    logic = np.flatnonzero((kind == LUT) | (kind == FLIP_FLOP) | (kind == RAM_WRITE))
    columns, rows = (np.unique(position[logic, axis]) for axis in range(2))
    place = np.array([(column, row) for column in columns for row in rows], np.int16)
    at = np.full((columns.max() + 1, rows.max() + 1), NONE, np.int32)
    at[place[:, 0], place[:, 1]] = np.arange(len(place))
    sites = ram_sites(block_rams)
    names = {name: site for site, (*_, name) in enumerate(sites)}
    cells = len(kind)

    def none(*shape):
        return np.full(shape, NONE, np.int32)

    tiles = Tiles(
        at=at, place=place, luts=none(len(place), PLACES), flip_flops=none(len(place), PLACES),
        writer=none(len(place)), polarity=none(len(place)), chain=none(len(place)),
        length=none(len(place)), rams=none(len(sites)),
        ram_places=np.array([site[:2] for site in sites], np.int16), tile_of=none(cells),
        free=np.zeros(cells, np.bool_), pair=none(cells), paired=np.zeros(cells, np.bool_),
        enable=none(cells), reset=none(cells), edges=none(cells))
    tiles.tile_of[logic] = at[position[logic, 0], position[logic, 1]]
    for cell in logic:
        tile, eighth = tiles.tile_of[cell], position[cell, 2]
        if kind[cell] == RAM_WRITE:
            tiles.writer[tile] = cell
        else:
            (tiles.luts if kind[cell] == LUT else tiles.flip_flops)[tile, eighth] = cell
    for cell in np.flatnonzero(kind == BLOCK_RAM):
        tiles.rams[names[placed.place_of(cell)]] = cell
    _share(placed, tiles)
    _chain(placed, tiles)
    return tiles


def _share(placed, tiles):
    """Which cells move alone, and what flip-flops have in common."""
    numbers = {}

    def number(*values):
        return numbers.setdefault(values, len(numbers))

    for cell in np.flatnonzero(placed.kind == LUT):
        tiles.free[cell] = (placed.mode(cell) == "LOGIC" and all(
            placed.net(cell, pin) is None for pin in ("F1", "FXA", "FXB")))
        if placed.mode(cell) == "DPRAM":
            tiles.polarity[tiles.tile_of[cell]] = number(
                placed.parameter(cell, "WCKMUX", "WCK") == "INV",
                placed.parameter(cell, "WREMUX", "WRE") in ("INV", "0"))
    for cell in np.flatnonzero(placed.kind == FLIP_FLOP):
        clock = placed.parameter(cell, "CLKMUX", "CLK") in ("INV", "0")
        reset = placed.parameter(cell, "LSRMUX", "LSR") == "INV"
        tiles.enable[cell] = number(placed.net(cell, "CE"), placed.parameter(cell, "CEMUX", "CE"),
                                    placed.parameter(cell, "GSR"))
        tiles.reset[cell] = number(placed.net(cell, "CLK"), placed.net(cell, "LSR"), clock, reset,
                                   placed.parameter(cell, "SRMODE"))
        tiles.edges[cell] = number(clock, reset)
        source, _ = placed.drivers.get(placed.net(cell, "DI"), (NONE, ""))
        tiles.free[cell] = source == NONE or tiles.free[source]
        if source != NONE:
            tiles.pair[source] = cell
            tiles.paired[cell] = True


def _chain(placed, tiles):
    """Carry chains of several tiles."""
    behind = {}
    for wire, (cell, pin) in placed.drivers.items():
        if pin == "FCO":
            for sink, _ in placed.sinks[wire]:
                one, other = tiles.tile_of[cell], tiles.tile_of[sink]
                if one != other:
                    behind[one] = other
    for first in set(behind) - set(behind.values()):
        tile, tiles.length[first] = first, 1
        tiles.chain[first] = first
        while tile in behind:
            tile = behind[tile]
            tiles.chain[tile] = first
            tiles.length[first] += 1


@njit
def allowed(tiles, tile):
    """Whether the flip-flops of a tile go together."""
    reset = NONE
    for first in range(0, PLACES, 2):
        enable = NONE
        for place in range(first, first + 2):
            cell = tiles.flip_flops[tile, place]
            if cell == NONE:
                continue
            if enable != NONE and enable != tiles.enable[cell]:
                return False
            if reset != NONE and reset != tiles.reset[cell]:
                return False
            if tiles.polarity[tile] != NONE and tiles.polarity[tile] != tiles.edges[cell]:
                return False
            enable, reset = tiles.enable[cell], tiles.reset[cell]
    return True
