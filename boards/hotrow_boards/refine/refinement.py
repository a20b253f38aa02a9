"""A placement while it is refined: what one round of annealing needs, told anew for each."""

from pathlib import Path

import numpy as np

from ..ram_sites import ram_sites
from .anneal import Costs, anneal, draw_boxes
from .crowd import crowd_of
from .moves import no_move
from .placed import FLIP_FLOP, LUT, Placed, along
from .tiles import NONE, tiles_of
from .timing import STEP, Timing, shares, time_arcs
from .wires import wires_of

_PATIENCE = 16.0  # how much more an arc weighs that has been 1 ns late in all rounds
_CROWDED = 0.2  # tiles of wire, of a net too many in a tile; of n as many times n squared
_LATEST = 8000  # ps beyond which it counts no more


class Refinement:
    """Rounds of annealing of one placement: `begin`, then `anneal` so many times.

    Parameters
    ----------
    placed : Placed
        Its positions change.
    seed : int
    period : int
        ps from clock edge to clock edge.
    block_rams : int
        Of the device.

    Members
    -------
    wires : Wires
    ends : ndarray of bool
        Of the arcs those at which a path ends.
    timing, wire_length : Timing, int
        As things lie; the sum of half perimeters, in tiles.
    mhz : float
        By estimate.
    """

    def __init__(self, placed: Placed, seed: int, period: int, block_rams: int):
        self.placed, self.period, self.block_rams = placed, period, block_rams
        self.wires, self.tiles = wires_of(placed), tiles_of(placed, block_rams)
        tiles, cells = self.tiles, len(placed.kind)
        self._leads = np.arange(cells)  # the cell with which each moves
        followed = np.flatnonzero(tiles.pair != NONE)
        self._leads[tiles.pair[followed]] = followed
        self._alone = tiles.free & ~tiles.paired & np.isin(placed.kind, (LUT, FLIP_FLOP))
        self._box = np.zeros((len(self.wires.launch), 4), np.int16)
        self._move, self._random = no_move(), np.random.default_rng(seed)
        self.ends = self.wires.setup >= 0
        self._measure()

    def begin(self, rounds: int):
        """Count anew, for so many rounds, what has been late."""
        self._late_before = np.zeros(len(self.wires.arcs))  # ns, of all rounds of which it was
        self._rounds = rounds

    def _measure(self):
        self.timing = time_arcs(self.wires, self.placed.position, self.period)
        self.wire_length = int(
            draw_boxes(self.wires.net_cells, self.placed.position, self._box))

    def figures(self) -> dict:
        """wire_length and mhz."""
        return {"wire_length": self.wire_length, "mhz": round(self.mhz, 1)}

    @property
    def mhz(self) -> float:
        return 1e6 / (self.period - self.timing.worst)

    def worst_first(self, few: int) -> Timing:
        """With as much to spare that so few ends are late: those on which all others wait."""
        slack = np.sort(self.timing.slack[self.ends])
        return self.timing._replace(
            slack=self.timing.slack - min(0, slack[min(few, len(slack) - 1)]))

    def urgent(self, counted: Timing, spare: int) -> np.ndarray:
        """Cells that move alone, or lead a pair, on paths with less than `spare` ps to spare."""
        cells = np.unique(self._leads[self.wires.arcs[counted.slack < spare, :2]])
        return cells[self._alone[cells]].astype(np.int32)

    def all_alone(self) -> np.ndarray:
        """All cells that do, in an order in which one is near the next."""
        return along(self.placed.position, np.flatnonzero(self._alone)).astype(np.int32)

    def anneal(self, moves: int, temperature: float, reach: int, counted: Timing,
               objects: np.ndarray, urgent: np.ndarray, impatience: float = 1.0,
               wanted: np.ndarray | None = None, pull: float = 0.0) -> tuple[int, int]:
        """One round; see `anneal`.

        Parameters
        ----------
        moves, temperature, reach, objects, urgent
        counted : Timing
            By which arcs get their shares.
        impatience : float
            How much more an arc weighs that is 1 ns late.
        wanted, pull
            What is wanted where (`target`), and how much; see `Costs`.

        Returns
        -------
        int, int
            Moves that were possible, and those made.
        """
        kind, position = self.placed.kind, self.placed.position
        late = np.clip(-counted.slack, 0, _LATEST) / 1000
        self._late_before += late / self._rounds
        # A tile too far costs as much as a tile of wire, and more the later it is.
        weight = 1 + impatience * late + _PATIENCE * self._late_before
        costs = Costs(
            box=self._box, share=shares(self.wires, counted).astype(np.float32),
            weight=(weight / STEP).astype(np.float32),
            target=position[:, :2].astype(np.float32) if wanted is None else wanted, pull=pull,
            crowd=crowd_of(self.wires, kind, position, self.tiles.at.shape, _CROWDED))
        done = anneal(moves, temperature, reach, self._random, self._move, self.wires, self.tiles,
                      kind, position, costs, objects, urgent)
        self._measure()
        return done

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Where everything is, for `put_back`."""
        return self.placed.position.copy(), self.tiles.rams.copy()

    def put_back(self, places: tuple[np.ndarray, np.ndarray]):
        """After the last round: everything is where it was once."""
        self.placed.position[:], self.tiles.rams[:] = places
        self._measure()

    def write(self, path: Path, **settings: str):
        """Write the placement; see `Placed.write`."""
        rams = {cell: name for cell, (*_, name)
                in zip(self.tiles.rams, ram_sites(self.block_rams)) if cell != NONE}
        self.placed.write(path, rams, **settings)
