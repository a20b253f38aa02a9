"""`hotrow bench clock`: the clock of the core, placed and routed with the open tools."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from hotrow.command.options import output_folder
from hotrow_rtl.config import PRESETS, preset

from .clock import BRAM_BITS, CAPACITY, DEVICE, measure

AIM_MHZ = 125


def clock(benchmarks):
    """Add `clock` to the benchmarks of `hotrow bench`."""
    parser = benchmarks.add_parser(
        "clock", help="clock and resources of the core on an FPGA, placed and routed",
        description=f"Place and route the core between shift registers for {DEVICE} with Yosys "
                    "and nextpnr, and print the median clock over the seeds.")
    add_core(parser, "ecp5")
    parser.add_argument("--seeds", type=_natural, nargs="+", default=[1, 2, 3],
                        help="seeds of the placement; default 1 2 3")
    parser.add_argument("--freq", type=_positive, default=AIM_MHZ, metavar="MHZ",
                        help=f"clock that the tools aim at; default {AIM_MHZ}")
    parser.set_defaults(run=run)


def add_core(parser, default, otherwise=""):
    """Add the options of a benchmark that maps the core of a preset."""
    parser.add_argument("--preset", default=default,
                        help=f"geometry of the card, one of {', '.join(PRESETS)}"
                             f"{otherwise or f'; default {default}'}")
    parser.add_argument("-o", "--output", type=output_folder, metavar="DIR",
                        help="keep the files of the tools in this folder")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def run(options) -> int:
    """Measure the clock and print it.

    Raises
    ------
    ValueError
        If the preset is unknown or does not fit, a seed is repeated, or a tool is missing or fails.
    """
    config, seeds = preset(options.preset), options.seeds
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"--seeds names a seed twice: {' '.join(map(str, seeds))}")
    from hotrow_rtl.emit.memory_report import memories
    from hotrow_rtl.emit.verilog import TOP_MODULE, emit

    _say(f"emitting the Verilog of {config.name} ...")
    verilog = emit(config)
    bits, room = sum(memory.bits for memory in memories(verilog, TOP_MODULE)), \
        CAPACITY["bram"] * BRAM_BITS
    if bits > room:
        raise ValueError(f"preset {config.name!r} does not fit into {DEVICE}: its memories have "
                         f"{bits:,} bits, the device has {room:,}")
    with tempfile.TemporaryDirectory(prefix="hotrow-clock-") as scratch:
        folder = options.output or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        result = {"preset": config.name,
                  **measure(verilog, TOP_MODULE, folder, seeds, options.freq, _say)}
    print(json.dumps(result) if options.json else _table(result))
    return 0


def _table(result):
    clocks = ", ".join(f"seed {seed}: {fmax}" for seed, fmax in result["fmax_by_seed"].items())
    seconds = result["seconds"]
    used = "  ".join(f"{result[name]:,} of {room:,} {name}" for name, room in CAPACITY.items())
    return (f"{result['preset']} on {result['device']}: {result['fmax_mhz']} MHz ({clocks})\n"
            f"{used}\n{seconds['synthesis']} s of synthesis, then "
            f"{', '.join(str(each) for each in seconds['routing'].values())} s of routing")


def _say(text):
    print(text, file=sys.stderr, flush=True)


def _natural(text):
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected an integer of at least 0, not {text!r}")
    return int(text)


def _positive(text):
    if not _natural(text):
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, not {text!r}")
    return int(text)
