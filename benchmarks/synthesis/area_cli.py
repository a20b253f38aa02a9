"""`hotrow bench area`: resources and logic depth of the core by Yosys, without placement."""

import json
import sys
import tempfile
from pathlib import Path

from hotrow_boards.synthesis import check_fit
from hotrow_rtl.config import preset

from .clock_cli import add_core
from .depth import deepest
from .ultrascale import CAPACITY, DEVICE, by_unit, map_modules, resources, total

_LEAST_LUTS = 1000  # of a unit with a line of its own


def area(benchmarks):
    """Add `area` to the benchmarks of `hotrow bench`."""
    parser = benchmarks.add_parser(
        "area", help="resources of the core by unit on a large FPGA, by Yosys, not placed",
        description=f"Map the core for {DEVICE} with Yosys, module by module, and print its "
                    "resources by unit and the paths with the most levels of LUTs. Nothing is "
                    "placed, so the clock remains unknown.")
    add_core(parser, "alveo-u55c")
    parser.set_defaults(run=run)


def run(options) -> int:
    """Map the core and print the resources.

    Raises
    ------
    ValueError
        If the preset is unknown or does not fit, or Yosys is missing or fails.
    """
    from hotrow_rtl.emit.verilog import TOP_MODULE, emit

    config = preset(options.preset)
    print(f"emitting and mapping {config.name} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="hotrow-area-") as scratch:
        folder = options.output or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        modules = map_modules(emit(config), TOP_MODULE, folder)
    found = resources(modules, TOP_MODULE)
    result = {"preset": config.name, "device": DEVICE, **total(found),
              "units": by_unit(found), "urams": by_unit(
                  {path: used for path, used in found.items() if used["uram"]}, depth=4),
              "paths": deepest(modules, TOP_MODULE)}
    check_fit(config.name, result, DEVICE, CAPACITY)
    print(json.dumps(result) if options.json else _table(result))
    return 0


def _table(result):
    units = {name: used for name, used in result["units"].items()
             if used["luts"] >= _LEAST_LUTS or used["uram"]}
    rest = {name: result[name] - sum(used[name] for used in units.values()) for name in CAPACITY}
    rows = {**units, "the rest": rest, "core": result, DEVICE: CAPACITY}
    lines = [f"{'unit':24}" + "".join(f"{name:>11}" for name in CAPACITY)]
    lines += [f"{unit:24}" + "".join(f"{used[name]:11,.10g}" for name in CAPACITY)
              for unit, used in rows.items()]
    memories = ", ".join(f"{name} {used['uram']}" for name, used in result["urams"].items())
    paths = (f"{path['levels']:2} levels: {path['from']} to {path['to']}"
             for path in result["paths"])
    return "\n".join([*lines, f"UltraRAM: {memories or 'none'}", *paths,
                      "by Yosys, not placed"])
