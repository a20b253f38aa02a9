"""Map Verilog to the cells of an ECP5 with Yosys."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from hotrow_rtl.primitives.ram import RAM_MODULE

from .routing import ROUTER_SETTINGS
from .tools import run, tool

RESOURCES = ("luts", "ffs", "bram", "dsp")
_CELLS = {  # cell type: resource, units of it that one cell takes
    "LUT4": ("luts", 1),
    "CCU2C": ("luts", 2),
    "TRELLIS_DPR16X4": ("luts", 6),
    "TRELLIS_FF": ("ffs", 1),
    "DP16KD": ("bram", 1),
    "MULT18X18D": ("dsp", 1),
}
_PREFIXES = re.compile(r"\$flatten|\$techmap|\\")  # of the path in the name of a cell
# (bits, rows): a `Ram` with at least as many of both becomes block RAM, because LUTs and wires are
# scarcer than block RAMs.
BLOCK_RAMS = ((26, 32), (100, 4))
# Modules are mapped to gates one by one, which takes minutes where one flat netlist takes hours;
# the flat netlist is then mapped to LUTs. `abc9` takes hours as well, so `abc` is used.
# The 8 flip-flops of a tile share 2 resets, and each pair shares an enable. Optimisation creates
# hundreds of resets and enables of a few flip-flops, which the placer cannot fit into a full
# device; those below these sizes become logic.
_LEAST_RESET, _LEAST_ENABLE = 8, 4  # flip-flops
# Timing: entering and leaving a carry chain takes as long as some bits in LUTs.
_LEAST_CARRY = 6  # bits; narrower sums become logic


def map_cells(reads: list[str], top: str, folder: Path,
              block_rams: Sequence[tuple[int, int]] = BLOCK_RAMS) -> dict:
    """Map module `top` to ECP5 cells and write the flat `netlist.json` to `folder`, and
    `units.json`, its resources by unit.

    Parameters
    ----------
    reads : list of str
        Yosys commands that read the sources.
    top : str
    folder : Path
        Holds the sources.
    block_rams : sequence of (int, int)
        Bits and rows from which a `Ram` becomes block RAM.

    Returns
    -------
    dict
        Units of each of `RESOURCES` that the netlist takes.

    Raises
    ------
    ValueError
        If Yosys is missing or fails.
    """
    reads = [*reads, *(
        f'setparam -set STYLE "block" t:{RAM_MODULE} r:WIDTH>={bits} %i r:DEPTH>={rows} %i'
        for bits, rows in block_rams)]
    (folder / "synthesis.ys").write_text(_script(reads, top))
    run([tool("yosys"), "-q", "-s", "synthesis.ys"], folder, "synthesis.log")
    path = folder / "netlist.json"
    netlist = json.loads(path.read_text())
    module = netlist["modules"][top]
    module["settings"] = ROUTER_SETTINGS
    path.write_text(json.dumps(netlist))
    units = count_units({name: cell["type"] for name, cell in module["cells"].items()})
    (folder / "units.json").write_text(json.dumps(units, indent=1))
    return {resource: sum(unit[resource] for unit in units.values()) for resource in RESOURCES}


def count_units(cells: dict[str, str], depth: int = 2) -> dict[str, dict[str, int]]:
    """Resources of a flat netlist by unit, the largest first.

    Parameters
    ----------
    cells : dict
        Type of each cell by name. Yosys begins the name with the path of the instance.
    depth : int
        Instances of a path that name a unit.
    """
    units: dict[str, dict[str, int]] = {}
    for name, kind in cells.items():
        if kind in _CELLS:
            path = _PREFIXES.sub("", name).split("$")[0].split(".")[:-1]
            unit = units.setdefault(".".join(path[:depth]), dict.fromkeys(RESOURCES, 0))
            resource, count = _CELLS[kind]
            unit[resource] += count
    return dict(sorted(units.items(), key=lambda unit: -unit[1]["luts"]))


def _script(reads, top):
    # Instances named *_replica are copies of a register near its loads (see `ReplicatedRegister`);
    # `keep` stops Yosys from merging them.
    sources = "\n".join(reads)
    return f"""\
{sources}
synth_ecp5 -noflatten -top {top} -run begin:map_gates
techmap -map +/techmap.v t:$alu r:Y_WIDTH<{_LEAST_CARRY} %i
opt_expr
synth_ecp5 -noflatten -top {top} -run map_gates:map_ffs
flatten
setattr -set keep 1 c:*_replica.*
opt_clean -purge
opt -full
simplemap
dfflegalize -cell $_DFF_?_ 01 -cell $_DFF_?P?_ r -cell $_SDFF_?P?_ r -cell $_DFFE_??_ 01 \
  -cell $_DFFE_?P??_ r -cell $_SDFFE_?P??_ r -minsrst {_LEAST_RESET} -mince {_LEAST_ENABLE}
synth_ecp5 -top {top} -run map_ffs:map_luts
opt_clean
abc -lut 4 -script +strash;ifraig;scorr;dc2;dch,-f;if;mfs2
clean
synth_ecp5 -top {top} -run map_cells: -json netlist.json
"""


def check_fit(what: str, used: dict, device: str, capacity: dict) -> None:
    """Refuse a netlist that takes more than the device has.

    Raises
    ------
    ValueError
        Naming every resource that does not suffice.
    """
    exceeded = [f"{used[resource]:,} {resource} of {units:,}"
                for resource, units in capacity.items() if used.get(resource, 0) > units]
    if exceeded:
        raise ValueError(f"{what} does not fit into {device}: it takes {', '.join(exceeded)}")
