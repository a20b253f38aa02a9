"""What is wired to what: nets, and the arcs from each net's driver to its sinks."""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from .placed import BLOCK_RAM, FLIP_FLOP, LUT, RAM_WRITE, Placed

# How an arc is wired: by any wires, inside a slice, or from a LUT or a flip-flop to a LUT, which in
# one tile may be direct.
ANYWHERE, INSIDE, FROM_LUT, FROM_FLIP_FLOP = range(4)
# Picoseconds of an ECP5 of speed grade 8, from Project Trellis' measurements.
_LUT, _CARRY_OUT, _CARRY_BIT, _CARRY_SUM = 180, 355, 28, 349
_MULTIPLIER = 3066  # without registers, as synthesis makes them
_LAUNCH = {"flip-flop": 395, "LUT RAM": 717, "block RAM": 4263, "block RAM register": 738}
_SETUP = {"LSR": 287, "WRE": 266, "block RAM": 200, "block RAM reset": 450}
_LUT_PINS = ("A", "B", "C", "D")
# Which output of the cell that writes a LUT RAM repeats which input.
_REPEATS = {"A0": "WADO3", "A1": "WDO1", "B0": "WADO1", "B1": "WDO3",
            "C0": "WADO2", "C1": "WDO0", "D0": "WADO0", "D1": "WDO2"}
NO_END = -1  # setup of an arc behind which a path goes on
_CONSTANT = -(1 << 28)  # launch of a net that never changes


class Rows(NamedTuple):
    """Rows of numbers, of various lengths: row n is `items[first[n]:first[n + 1]]`."""

    first: np.ndarray
    items: np.ndarray


class Wires(NamedTuple):
    """Nets and arcs by number.

    arcs is (arcs, 4): source and sink cell, how it is wired, and its delay in ps. `through` lists
    what goes on behind an arc: edges, of which `edge_net` is the net that follows and `edge_delay`
    what the cell between takes; `into` lists the edges to a net, of which `edge_arc` is the arc
    before. `order` are the nets, each behind those that it depends on.
    """

    arcs: np.ndarray
    arc_net: np.ndarray
    setup: np.ndarray
    launch: np.ndarray
    edge_arc: np.ndarray
    edge_net: np.ndarray
    edge_delay: np.ndarray
    order: np.ndarray
    net_arcs: Rows
    through: Rows
    into: Rows
    net_cells: Rows
    cell_nets: Rows
    cell_arcs: Rows


def wires_of(placed: Placed) -> Wires:
    """The nets of a design, clocks left out.

    Raises
    ------
    ValueError
        If logic drives itself.
    """
    nets = sorted((wire for wire in placed.drivers if placed.sinks.get(wire)),
                  key=lambda wire: placed.drivers[wire])
    arcs, arc_net, setup, entries = [], [], [], defaultdict(list)
    outputs = defaultdict(dict)
    for net, wire in enumerate(nets):
        source, out = placed.drivers[wire]
        outputs[source][out] = net
        for sink, pin in placed.sinks[wire]:
            if (needs := _setup(placed, sink, pin)) == NO_END:
                entries[sink].append((len(arcs), pin))
            arcs.append((source, sink, _way(placed, out, sink, pin), 0))
            arc_net.append(net)
            setup.append(needs)
    edges = [(arc, net, delay) for cell, inputs in entries.items() for arc, pin in inputs
             for net, delay in _passes(placed, cell, pin, outputs[cell])]
    arcs = np.array(arcs, np.int32)
    arc_net = np.array(arc_net, np.int32)
    edge_arc, edge_net, edge_delay = np.array(edges, np.int64).reshape(-1, 3).T
    net_arcs = _rows(arc_net, len(nets))
    through, into = _rows(edge_arc, len(arcs)), _rows(edge_net, len(nets))
    net_of = np.concatenate([arc_net, arc_net])
    pins = np.unique(np.stack([net_of, np.concatenate([arcs[:, 0], arcs[:, 1]])], 1), axis=0)
    cells = len(placed.cells)
    at_cells = np.concatenate([arcs[:, 0], arcs[arcs[:, 0] != arcs[:, 1], 1]])
    at_arcs = np.concatenate([np.arange(len(arcs)), np.flatnonzero(arcs[:, 0] != arcs[:, 1])])
    return Wires(
        arcs=arcs, arc_net=arc_net, setup=np.array(setup, np.int32),
        launch=np.array([_launch(placed, *placed.drivers[wire]) for wire in nets], np.int32),
        edge_arc=edge_arc.astype(np.int32), edge_net=edge_net.astype(np.int32),
        edge_delay=edge_delay.astype(np.int32),
        order=_order(len(nets), net_arcs, through, into, edge_net),
        net_arcs=net_arcs, through=through, into=into,
        net_cells=_rows(pins[:, 0], len(nets), pins[:, 1]),
        cell_nets=_rows(pins[:, 1], cells, pins[:, 0]),
        cell_arcs=_rows(at_cells, cells, at_arcs))


def _rows(keys, count, items=None):
    first = np.zeros(count + 1, np.int64)
    np.add.at(first, keys + 1, 1)
    order = np.argsort(keys, kind="stable")
    return Rows(np.cumsum(first), (order if items is None else items[order]).astype(np.int32))


def _order(nets, net_arcs, through, into, edge_net):
    missing = np.diff(into.first)
    order = list(np.flatnonzero(missing == 0))
    for net in order:  # grows
        for arc in net_arcs.items[net_arcs.first[net]:net_arcs.first[net + 1]]:
            for edge in through.items[through.first[arc]:through.first[arc + 1]]:
                missing[edge_net[edge]] -= 1
                if missing[edge_net[edge]] == 0:
                    order.append(edge_net[edge])
    if len(order) < nets:
        raise ValueError(f"{nets - len(order)} nets are in loops of logic: expected registers "
                         f"between a net and itself")
    return np.array(order, np.int32)


def _way(placed, out, sink, pin):
    """How an arc is wired."""
    if (out == "FCO" or pin in ("FCI", "FXA", "FXB", "F1") or (out, pin) == ("F", "DI")
            or pin in ("WD", "WAD0", "WAD1", "WAD2", "WAD3")):
        return INSIDE
    if placed.kind[sink] == LUT and pin in _LUT_PINS:
        return {"F": FROM_LUT, "Q": FROM_FLIP_FLOP}.get(out, ANYWHERE)
    return ANYWHERE


def _launch(placed, cell, pin):
    """How long after a clock edge a net changes that does not wait for another one."""
    kind = placed.kind[cell]
    if kind == LUT:
        if placed.mode(cell) == "DPRAM":
            return _LAUNCH["LUT RAM"]
        return 0 if placed.inputs(cell) else _CONSTANT
    if kind == FLIP_FLOP:
        return _LAUNCH["flip-flop"]
    if kind == BLOCK_RAM:
        mode = placed.parameter(cell, f"REGMODE_{pin[2]}", "NOREG")  # of DOAn or DOBn
        return _LAUNCH["block RAM" if mode == "NOREG" else "block RAM register"]
    return 0


def _setup(placed, cell, pin):
    """How long before a clock edge a pin must hold still; `NO_END` if that is for others to say."""
    kind = placed.kind[cell]
    if kind == FLIP_FLOP:
        return _SETUP.get(pin, 0)
    if kind == BLOCK_RAM:
        return _SETUP["block RAM reset" if pin.startswith("RST") else "block RAM"]
    if kind == LUT and pin.startswith(("WD", "WAD", "WRE")):
        return _SETUP.get(pin, 0)
    return NO_END if kind in (LUT, RAM_WRITE) or _multiplies(placed, cell) else 0


def _passes(placed, cell, pin, outputs):
    """The nets that depend on a pin of a cell: (net, delay)."""
    if placed.kind[cell] == RAM_WRITE:
        return [(outputs[out], 0) for out in (_REPEATS.get(pin),) if out in outputs]
    if _multiplies(placed, cell):
        return [(net, _MULTIPLIER) for net in outputs.values()]
    carries = placed.mode(cell) == "CCU2"
    passes = []
    for out, net in outputs.items():
        delay = _LUT
        if carries and out == "FCO":
            delay = _CARRY_BIT if pin == "FCI" else _CARRY_OUT
        elif carries and pin == "FCI":
            delay = _CARRY_SUM
        passes.append((net, delay))
    return passes


def _multiplies(placed, cell):
    return placed.cells[cell]["type"] == "MULT18X18D"
