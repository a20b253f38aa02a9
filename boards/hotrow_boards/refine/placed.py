"""A placement of an ECP5 as nextpnr writes it: where each cell is, and what it is wired to."""

import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np

LUT, FLIP_FLOP, BLOCK_RAM, RAM_WRITE, OTHER = range(5)
KINDS = {"TRELLIS_COMB": LUT, "TRELLIS_FF": FLIP_FLOP, "DP16KD": BLOCK_RAM,
         "TRELLIS_RAMW": RAM_WRITE}
CLOCK_PINS = {"CLK", "WCK", "CLKA", "CLKB", "CLK0", "CLK1", "CLK2", "CLK3"}
_PLACE = re.compile(r"X(\d+)/Y(\d+)/(.+)")
_SITE = re.compile(r"SLICE([A-D])\.(K|FF|RAMW)(\d?)")
_BLOCK = 6  # tiles each way: cells of a block are neighbours in memory, too


class Placed:
    """Cells by number, those that lie together one after the other.

    Parameters
    ----------
    path : Path
        What nextpnr wrote after placing.

    Attributes
    ----------
    cells : list of dict
        As in the file.
    kind : ndarray of int8, by cell
    position : ndarray of int16, (cells, 3)
        Column, row and, in a tile of logic, the place of eight.
    drivers : dict of int to (int, str)
        By wire: the cell that drives it, and with which pin.
    sinks : dict of int to list of (int, str)
        Those that it drives, clock pins left out.

    Raises
    ------
    ValueError
        If a cell has no place.
    """

    def __init__(self, path: Path):
        self._document = json.loads(path.read_text())
        (self._module,) = self._document["modules"].values()
        cells = self._module["cells"]
        places = {name: self._place(name, cell) for name, cell in cells.items()}

        names = list(cells)
        self.names = [names[at] for at in along(
            np.array([places[name][:2] for name in names]), np.arange(len(names)))]
        self.cells = [cells[name] for name in self.names]
        self.kind = np.array([KINDS.get(cell["type"], OTHER) for cell in self.cells], np.int8)
        self._bels = [places[name][2] for name in self.names]
        self.position = np.array([
            (*places[name][:2], _eighth(bel)) for name, bel in zip(self.names, self._bels)],
            np.int16)
        self.drivers, self.sinks = {}, defaultdict(list)
        for number, cell in enumerate(self.cells):
            for pin, bits in cell["connections"].items():
                if not bits or not isinstance(bits[0], int):
                    continue
                if cell["port_directions"][pin] == "output":
                    self.drivers[bits[0]] = number, pin
                elif pin not in CLOCK_PINS:
                    self.sinks[bits[0]].append((number, pin))

    @staticmethod
    def _place(name, cell):
        found = _PLACE.fullmatch(cell["attributes"].get("NEXTPNR_BEL", ""))
        if found:
            return int(found[1]), int(found[2]), found[3]
        if cell["type"] in KINDS:
            raise ValueError(f"cell {name} has no place: expected a design that nextpnr has placed")
        return 0, 0, ""  # what belongs to the device as a whole

    def inputs(self, number: int) -> int:
        """How many inputs of a cell are wired."""
        cell = self.cells[number]
        return sum(bool(bits) and isinstance(bits[0], int)
                   for pin, bits in cell["connections"].items()
                   if cell["port_directions"][pin] == "input")

    def place_of(self, number: int) -> str:
        """nextpnr's name of where a cell is."""
        column, row, _ = self.position[number]
        return f"X{column}/Y{row}/{self._bels[number]}"

    def mode(self, number: int) -> str:
        """Of a LUT: LOGIC, CCU2 (carry), DPRAM, or RAMW_BLOCK (its address and data pass)."""
        return self.cells[number]["parameters"].get("MODE", "LOGIC")

    def net(self, number: int, pin: str):
        """The wire at a pin, or None."""
        bits = self.cells[number]["connections"].get(pin)
        return bits[0] if bits else None

    def parameter(self, number: int, name: str, default: str = "") -> str:
        # nextpnr marks text of digits by a space behind it.
        return self.cells[number]["parameters"].get(name, default).rstrip(" ")

    def write(self, path: Path, block_rams: dict[int, str], **settings: str) -> None:
        """Write the placement with the cells where `position` says.

        Parameters
        ----------
        path : Path
        block_rams : dict of int to str
            nextpnr's name of the site of each block RAM.
        **settings : str
            Of nextpnr, which follows the file, not its command line.
        """
        for number, (cell, bel) in enumerate(zip(self.cells, self._bels)):
            column, row, eighth = self.position[number]
            if number in block_rams:
                place = block_rams[number]
            elif self.kind[number] in (LUT, FLIP_FLOP, RAM_WRITE):
                place = f"X{column}/Y{row}/{_site(bel, eighth)}"
            else:
                continue
            cell["attributes"]["NEXTPNR_BEL"] = place
        self._module["settings"] |= settings
        path.write_text(json.dumps(self._document))


def along(position: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Some of the cells in an order in which one is near the next: block by block, to and fro."""
    column, row = (position[numbers, axis] // _BLOCK for axis in range(2))
    return numbers[np.lexsort((np.where(row % 2, -column, column), row))]


def _eighth(bel):
    """A tile has four slices of two LUTs and two flip-flops."""
    found = _SITE.fullmatch(bel)
    return 2 * "ABCD".index(found[1]) + int(found[3] or 0) if found else 0


def _site(bel, eighth):
    kind = _SITE.fullmatch(bel)[2]
    return f"SLICE{'ABCD'[eighth // 2]}.{kind}{'' if kind == 'RAMW' else eighth % 2}"
