"""`hotrow bench area`: resources and logic depth of a card by Yosys, without placement."""

import json
import sys
import tempfile
from pathlib import Path

from hotrow_boards.synthesis import check_fit
from hotrow_rtl.config import preset

from .clock_cli import add_core
from .depth import deepest
from .xilinx import DEVICES, by_unit, map_modules, resources, total

_LEAST_LUTS = 1000  # of a unit with a line of its own


def area(benchmarks):
    """Add `area` to the benchmarks of `hotrow bench`."""
    parser = benchmarks.add_parser(
        "area", help="resources of a card by unit on a Xilinx FPGA, by Yosys, not placed",
        description="Map a card for an FPGA with Yosys, module by module, and print its resources "
                    "by unit and the paths with the most levels of LUTs. Nothing is placed, so the "
                    "clock remains unknown.")
    add_core(parser, None, "; default the one that is for the device")
    parser.add_argument("--device", choices=DEVICES, default=next(iter(DEVICES)),
                        help="xcu55c: the core; xc7a200t: the core with its bridge to PCI Express")
    parser.set_defaults(run=run)


def run(options) -> int:
    """Map the core and print the resources.

    Raises
    ------
    ValueError
        If the preset is unknown or does not fit, or Yosys is missing or fails.
    """
    from hotrow_rtl.emit.verilog import TOP_MODULE, emit
    from hotrow_rtl.export.pcie_card import CARD_MODULE, card_files

    device = DEVICES[options.device]
    config = preset(options.preset or device.preset)
    top = CARD_MODULE if device.bridge else TOP_MODULE
    print(f"emitting and mapping {config.name} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="hotrow-area-") as scratch:
        folder = options.output or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        verilog = "".join(card_files(config).values()) if device.bridge else emit(config)
        modules = map_modules(verilog, top, folder, device)
    found = resources(modules, top)
    result = {"preset": config.name, "device": device.name, **total(found),
              "units": by_unit(found), "urams": by_unit(
                  {path: used for path, used in found.items() if used["uram"]}, depth=4),
              "paths": deepest(modules, top)}
    check_fit(config.name, result, device.name, device.capacity)
    print(json.dumps(result) if options.json else _table(result, device))
    return 0


def _table(result, device):
    units = {name: used for name, used in result["units"].items()
             if used["luts"] >= _LEAST_LUTS or used["uram"]}
    kinds = device.capacity
    rest = {name: result[name] - sum(used[name] for used in units.values()) for name in kinds}
    rows = {**units, "the rest": rest, "total": result, device.name: kinds}
    lines = [f"{'unit':24}" + "".join(f"{name:>11}" for name in kinds)]
    lines += [f"{unit:24}" + "".join(f"{used[name]:11,.10g}" for name in kinds)
              for unit, used in rows.items()]
    memories = ", ".join(f"{name} {used['uram']}" for name, used in result["urams"].items())
    paths = (f"{path['levels']:2} levels: {path['from']} to {path['to']}"
             for path in result["paths"])
    return "\n".join([*lines, f"UltraRAM: {memories or 'none'}", *paths,
                      "by Yosys, not placed"])
