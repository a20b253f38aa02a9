"""LUT RAMs: memories of logic hold no bit that is constant, and none twice.

Yosys maps memories before it knows what is written to them, which modules above tell: of bytes that
are always zero, and of strobes that are all alike, every bit gets its place. On ECP5 four bits take
the logic of six.
"""

from collections import defaultdict

RAM, FLIP_FLOP = "TRELLIS_DPR16X4", "TRELLIS_FF"
_BITS = 4  # of a cell
_ADDRESSES = ("RAD", "WAD")
_CONTROLS = (*_ADDRESSES, "WRE", "WCK")
_UNDEFINED = set("x0")  # contents that no one relies on, as of every `Ram`


def pack_lut_rams(module: dict) -> int:
    """Pack the memories of a netlist that are made of logic, in place.

    Bits that are always written zero are zero, and so are flip-flops that follow them; bits that
    are written alike become one. What is left fills as few cells as it can. Of memories with fewer
    than 16 rows, address bits that are zero become the bit below them: nextpnr would wire them to
    one driver of zeros, over the whole device, and what is read lies where it was written as long
    as both addresses say the same.

    Parameters
    ----------
    module : dict
        A flat module of ECP5 cells, as in the JSON that Yosys writes.

    Returns
    -------
    int
        Cells that are left out.
    """
    cells, memories = module["cells"], defaultdict(list)
    for name, cell in cells.items():
        if cell["type"] == RAM and set(cell["parameters"].get("INITVAL", "")) <= _UNDEFINED:
            memories[_key(cell)].append(name)
    instead = {}  # of bits that are left out
    before = len(cells)
    for names in memories.values():
        _pack(cells, names, instead)
    _follow(cells, instead)
    for cell in cells.values():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "input":
                cell["connections"][port] = [_final(bit, instead) for bit in bits]
    for port in module["ports"].values():
        if port["direction"] == "output":
            port["bits"] = [_final(bit, instead) for bit in port["bits"]]
    for net in module["netnames"].values():
        net["bits"] = [_final(bit, instead) for bit in net["bits"]]
    for cell in cells.values():
        if cell["type"] == RAM:
            _spare_addresses(*(cell["connections"][port] for port in _ADDRESSES))
    return before - len(cells)


def _key(cell):
    """What cells of one memory have in common."""
    others = {name: value for name, value in cell["parameters"].items() if name != "INITVAL"}
    return (*(tuple(cell["connections"][port]) for port in _CONTROLS),
            tuple(sorted(others.items())))


def _pack(cells, names, instead):
    """Bits of one memory into the first of its cells; the others go."""
    kept = {}  # by what is written, what is read
    for name in names:
        wires = cells[name]["connections"]
        for given, told in zip(wires["DI"], wires["DO"]):
            if isinstance(told, int):  # someone reads it
                if given in _UNDEFINED:
                    instead[told] = "0"
                elif given in kept:
                    instead[told] = kept[given]
                else:
                    kept[given] = told
    bits = list(kept.items())
    places = [bits[first:first + _BITS] for first in range(0, len(bits), _BITS)]
    for name, bits in zip(names, places):
        none = [("x", "x")] * (_BITS - len(bits))
        wires = cells[name]["connections"]
        wires["DI"], wires["DO"] = map(list, zip(*bits, *none))
    for name in names[len(places):]:
        del cells[name]


def _follow(cells, instead):
    """Flip-flops of what is zero, which they are from the start, are zero."""
    waiting = [name for name, cell in cells.items() if cell["type"] == FLIP_FLOP
               and cell["parameters"].get("REGSET", "RESET") == "RESET"]
    while True:
        still = [name for name in waiting
                 if _final(cells[name]["connections"]["DI"][0], instead) != "0"]
        if len(still) == len(waiting):
            return
        for name in set(waiting) - set(still):
            instead[cells.pop(name)["connections"]["Q"][0]] = "0"
        waiting = still


def _final(bit, instead):
    """The bit that stands for another, or itself."""
    while bit in instead:
        bit = instead[bit]
    return bit


def _spare_addresses(read, write):
    for bit in range(1, len(read)):
        if read[bit] == write[bit] == "0":
            read[bit], write[bit] = read[bit - 1], write[bit - 1]
