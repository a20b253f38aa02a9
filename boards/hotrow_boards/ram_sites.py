"""RAM sites: which block RAM of an ECP5 each memory of a netlist gets, before the rest is placed.

Block RAMs lie in a few rows, far apart. nextpnr gives each memory in turn the nearest that is left;
in a device where most are in use the last ones get what is far from all that they work with, and
the wires of the whole design double.
"""

import numpy as np
from scipy import sparse

RAM = "DP16KD"
# Four block RAMs share nine columns, less where columns of the device hold something else.
_COLUMNS = (0, 2, 4, 6)
# By the number of block RAMs of the device: rows, and the first column of each four.
_DEVICES = {
    56: ((25, 37), (4, 13, 22, 33, 42, 51, 60)),
    108: ((10, 34, 58), (4, 13, 22, 31, 42, 51, 60, 69, 78)),
    208: ((22, 46, 70, 82), (4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114)),
}
_MOST_PINS = 40  # of a net that pulls its cells together; a larger one is everywhere
_LOOSE = 1e-4  # pull on a cell that no wire leads from to a block RAM
_TOGETHER = 64  # columns of a system that are solved at a time
_EXACT = 1e-5  # what of them may be left, as a square
_TINY = 1e-30  # in place of zero under a fraction


def ram_sites(rams: int) -> list[tuple[int, int, str]]:
    """Column, row and nextpnr's name of each block RAM of the ECP5 that has so many."""
    rows, firsts = _DEVICES[rams]
    return [(first + column, row, f"X{first + column}/Y{row}/EBR{number}")
            for row in rows for first in firsts for number, column in enumerate(_COLUMNS)]


def place_rams(module: dict, rams: int, seed: int = 1) -> None:
    """Give every block RAM of a netlist, in place, a site close to those that it works with.

    The sum over all wires of their squared length is made small. For given sites the logic is best
    where its wires are in balance, so it can be eliminated from that sum (Kron reduction): what is
    left is how much any two block RAMs pull at each other, and a quadratic assignment, of which
    simulated annealing finds a good solution.

    Parameters
    ----------
    module : dict
        A flat module of ECP5 cells, as in the JSON that Yosys writes.
    rams : int
        Block RAMs of the device, at least those of the module.
    seed : int
        Of the annealing.
    """
    from .ram_annealing import assign  # what compiles it is loaded only where it is needed

    cells = list(module["cells"].values())
    placed = [number for number, cell in enumerate(cells) if cell["type"] == RAM]
    if not placed:
        return
    sites = ram_sites(rams)
    points = np.array([site[:2] for site in sites], float)
    pull = np.zeros((len(sites), len(sites)))  # sites to spare have block RAMs without wires
    pull[:len(placed), :len(placed)] = _pull(_wires(cells), np.array(placed))
    chosen = assign(pull, ((points[:, None] - points) ** 2).sum(2), np.random.default_rng(seed))
    for number, site in zip(placed, chosen):
        cells[number].setdefault("attributes", {})["BEL"] = sites[site][2]


def _wires(cells):
    """The Laplacian of the netlist. A net of two pins is a wire, one of more a star."""
    nets = {}
    for number, cell in enumerate(cells):
        for bits in cell["connections"].values():
            for bit in bits:
                if isinstance(bit, int):  # not a constant
                    nets.setdefault(bit, set()).add(number)
    ends, weights, nodes = [], [], len(cells)
    for pins in nets.values():
        if len(pins) == 2:
            ends.append(tuple(pins))
            weights.append(1.0)
        elif 2 < len(pins) <= _MOST_PINS:
            ends += [(pin, nodes) for pin in sorted(pins)]
            weights += [len(pins) / (len(pins) - 1)] * len(pins)
            nodes += 1
    one, other = np.array(ends, int).reshape(-1, 2).T
    wires = sparse.coo_array((weights, (one, other)), (nodes, nodes))
    wires = (wires + wires.T).tocsr()
    return (sparse.diags_array(wires.sum(axis=1)) - wires).tocsr()


def _pull(laplacian, rams):
    """How much each two of `rams` pull at each other, all other nodes being where they like."""
    logic = np.setdiff1d(np.arange(laplacian.shape[0]), rams)
    across = laplacian[logic][:, rams].tocsc()
    among = laplacian[logic][:, logic] + _LOOSE * sparse.eye_array(len(logic))
    pull = -laplacian[rams][:, rams].toarray()
    for first in range(0, len(rams), _TOGETHER):
        some = slice(first, first + _TOGETHER)
        pull[:, some] += across.T @ _solve(among.tocsr(), across[:, some].toarray())
    np.fill_diagonal(pull, 0)
    return (pull + pull.T) / 2


def _solve(matrix, right):
    """Solve for all columns of `right`, by conjugate gradients."""
    scale = 1 / matrix.diagonal()[:, None]
    solution, rest = np.zeros_like(right), right.copy()
    step = scale * rest
    left = first = (rest * step).sum(0)
    while (left > _EXACT * first).any():
        moved = matrix @ step
        length = left / np.maximum((step * moved).sum(0), _TINY)
        solution += length * step
        rest -= length * moved
        scaled = scale * rest
        before, left = left, (rest * scaled).sum(0)
        step = scaled + left / np.maximum(before, _TINY) * step
    return solution
