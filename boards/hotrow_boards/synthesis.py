"""From Verilog to the cells of an ECP5, with Yosys."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from hotrow_rtl.primitives.ram import RAM_MODULE

from .lut_rams import pack_lut_rams
from .routing import PATIENT
from .tools import run, tool

# How much of the device each cell of a netlist takes.
RESOURCES = ("luts", "ffs", "bram", "dsp")
_CELLS = {
    "LUT4": ("luts", 1),
    "CCU2C": ("luts", 2),
    "TRELLIS_DPR16X4": ("luts", 6),
    "TRELLIS_FF": ("ffs", 1),
    "DP16KD": ("bram", 1),
    "MULT18X18D": ("dsp", 1),
}
# Modules are mapped one by one as far as gates, which takes minutes where one flat netlist takes
# hours; then all of them together to LUTs. In place of `abc9`, which takes hours as well, `abc`;
# wider LUTs, on this device made of those of four inputs, would cost it up to twice the area.
# Shallow, it maps without recovering area (`-F 0 -A 0`): that it does wherever the worst path of
# the whole netlist leaves time, so that all others become almost as long as that one.
# The 8 flip-flops of a tile share 2 resets, each pair an enable: with resets and enables of a few
# flip-flops left, of which optimisation makes hundreds, the placer of a full device does not end.
_LEAST_RESET, _LEAST_ENABLE = 30, 8  # flip-flops; those of fewer become logic
# The way into a carry chain and out of it takes as long as some bits in LUTs, which join the logic
# around them.
_LEAST_CARRY = 6  # bits; sums of fewer become logic
# What is told to units far apart has a register near each (see `Relay`), all alike: kept, they are
# not merged into one that is far from most of what it drives.


def map_cells(reads: list[str], top: str, folder: Path, shallow: bool = False,
              blocks: Sequence[tuple[int, int]] = (),
              arrange: Callable[[dict, dict], None] = lambda module, used: None) -> dict:
    """Map the module `top` to ECP5: `netlist.json` in `folder`, flat, for a patient router.

    Parameters
    ----------
    reads : list of str
        Commands for Yosys that read the sources.
    top : str
    folder : Path
        Where the sources are.
    shallow : bool
        Every path as few LUTs in a row as it can be, not the longest alone: for the best clock, at
        the cost of some LUTs and of wires.
    blocks : sequence of (int, int)
        Bits of a row, and rows: a `Ram` that has at least as many of both is block RAM.
    arrange : callable
        Changes the module of cells in place; given with it what it takes of the device.

    Returns
    -------
    dict
        What it takes of the device, by names as in `RESOURCES`.

    Raises
    ------
    ValueError
        If Yosys is missing or fails.
    """
    reads = [*reads, *(
        f'setparam -set STYLE "block" t:{RAM_MODULE} r:WIDTH>={bits} %i r:DEPTH>={rows} %i'
        for bits, rows in blocks)]
    (folder / "synthesis.ys").write_text(_script(reads, top, shallow))
    run([tool("yosys"), "-q", "-s", "synthesis.ys"], folder, "synthesis.log")
    path = folder / "netlist.json"
    netlist = json.loads(path.read_text())
    module = netlist["modules"][top]
    pack_lut_rams(module)
    arrange(module, _count(module))
    module["settings"] = PATIENT
    path.write_text(json.dumps(netlist))
    return _count(module)


def _count(module):
    """What a module takes of the device."""
    used = dict.fromkeys(RESOURCES, 0)
    for kind, count in Counter(cell["type"] for cell in module["cells"].values()).items():
        if kind in _CELLS:
            name, each = _CELLS[kind]
            used[name] += each * count
    return used


def _script(reads, top, shallow):
    mapping = "if,-F,0,-A,0" if shallow else "if"
    sources = "\n".join(reads)
    return f"""\
{sources}
synth_ecp5 -noflatten -top {top} -run begin:map_gates
techmap -map +/techmap.v t:$alu r:Y_WIDTH<{_LEAST_CARRY} %i
opt_expr
synth_ecp5 -noflatten -top {top} -run map_gates:map_ffs
flatten
setattr -set keep 1 c:*_relay.*
opt_clean -purge
opt -full
simplemap
dfflegalize -cell $_DFF_?_ 01 -cell $_DFF_?P?_ r -cell $_SDFF_?P?_ r -cell $_DFFE_??_ 01 \
  -cell $_DFFE_?P??_ r -cell $_SDFFE_?P??_ r -minsrst {_LEAST_RESET} -mince {_LEAST_ENABLE}
synth_ecp5 -top {top} -run map_ffs:map_luts
opt_clean
abc -lut 4 -script +strash;ifraig;scorr;dc2;dch,-f;{mapping};mfs2
clean
synth_ecp5 -top {top} -run map_cells: -json netlist.json
"""


def check_fit(what: str, used: dict, device: str, capacity: dict) -> None:
    """Refuse more than the device has.

    Raises
    ------
    ValueError
        Naming every resource that does not suffice.
    """
    short = [f"{used[name]:,} {name} of {room:,}"
             for name, room in capacity.items() if used.get(name, 0) > room]
    if short:
        raise ValueError(f"{what} does not fit into {device}: it takes {', '.join(short)}")
