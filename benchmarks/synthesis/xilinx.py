"""Map a card to the cells of a Xilinx FPGA with Yosys, module by module, without placement.

The result keeps the hierarchy: each distinct module is mapped once. Logic is not optimised across
modules, so that the counts are a little high.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from hotrow_boards.tools import run, tool
from hotrow_rtl.export.openxc7 import MAPPING


@dataclass(frozen=True)
class Device:
    """An FPGA.

    Parameters
    ----------
    name : str
    options : str
        Of `synth_xilinx`.
    capacity : dict of str to int
        Units of each resource.
    preset : str
        The card that it is for.
    bridge : bool
        The card has its bridge to PCI Express.
    """

    name: str
    options: str
    capacity: dict[str, int]
    preset: str
    bridge: bool


DEVICES = {device.name.lower(): device for device in (
    Device("XCU55C", "-family xcup -uram", {
        "luts": 1_303_680, "ffs": 2_607_360, "bram": 2016, "uram": 960, "dsp": 9024},
        "alveo-u55c", False),
    Device("XC7A200T", "-family xc7", {
        "luts": 134_600, "ffs": 269_200, "bram": 365, "uram": 0, "dsp": 740}, "ecp5", True),
)}
_CELLS = {  # cell type: resource, units of it that one cell takes
    **{f"LUT{inputs}": ("luts", 1) for inputs in range(1, 7)}, "INV": ("luts", 1),
    "RAM32M16": ("luts", 8), "RAM64M8": ("luts", 8),  # LUTs as memory
    "RAM32M": ("luts", 4), "RAM64M": ("luts", 4),
    **{kind: ("ffs", 1) for kind in ("FDRE", "FDSE", "FDCE", "FDPE")},
    "RAMB18E1": ("bram", 0.5), "RAMB36E1": ("bram", 1), "DSP48E1": ("dsp", 1),
    "RAMB18E2": ("bram", 0.5), "RAMB36E2": ("bram", 1), "DSP48E2": ("dsp", 1),
    "URAM288": ("uram", 1),
}
_DIGITS = re.compile(r"(?<=\D)\d+")
_SCRIPT = f"""\
read_verilog -sv core.v
{MAPPING}\
blackbox =A:whitebox
write_json netlist.json
"""


def map_modules(verilog: str, top: str, folder: Path, device: Device) -> dict:
    """Map a card; the files of Yosys go to `folder`.

    Parameters
    ----------
    verilog : str
    top : str
        Module of the card in `verilog`.
    folder : Path
        Existing folder.
    device : Device

    Returns
    -------
    dict
        Modules of Yosys' JSON netlist by name, without the models of cells.

    Raises
    ------
    ValueError
        If Yosys is missing or fails.
    """
    (folder / "core.v").write_text(verilog)
    (folder / "area.ys").write_text(_SCRIPT.format(
        top=top, options=f"{device.options} -noiopad -noclkbuf"))
    run([tool("yosys"), "-q", "-s", "area.ys"], folder, "area.log")
    netlist = json.loads((folder / "netlist.json").read_text())
    return {name: module for name, module in netlist["modules"].items()
            if "blackbox" not in module["attributes"]}


def resources(modules: dict, top: str) -> dict[str, Counter]:
    """Resources by instance path below `top`, "" being `top` itself, each without its instances.

    Raises
    ------
    ValueError
        If the netlist has a cell of an unknown kind.
    """
    found: dict[str, Counter] = {}

    def below(name, path):
        used = found[".".join(path)] = Counter()
        for instance, cell in modules[name]["cells"].items():
            kind = cell["type"]
            if kind in modules:
                below(kind, (*path, instance))
            elif kind in _CELLS:
                resource, units = _CELLS[kind]
                used[resource] += units
            elif kind not in ("CARRY4", "$scopeinfo"):  # a chain lies beside LUTs that are counted
                raise ValueError(f"{name} has a cell of unknown kind {kind}, {instance}")
    below(top, ())
    return found


def by_unit(found: dict[str, Counter], depth: int = 2) -> dict[str, Counter]:
    """Sums of `resources` by the first `depth` instances of a path, the largest first.

    Numbers in names are left out: "engines.bank" is the sum of all banks.
    """
    units: dict[str, Counter] = {}
    for path, used in found.items():
        name = _DIGITS.sub("", ".".join(path.split(".")[:depth]))
        units.setdefault(name, Counter()).update(used)
    return dict(sorted(units.items(), key=lambda unit: -unit[1]["luts"]))


def total(found: dict[str, Counter]) -> dict[str, float]:
    """Sum of `resources`, an entry for each kind of them."""
    return {name: sum(used[name] for used in found.values())
            for name in ("luts", "ffs", "bram", "uram", "dsp")}
