"""Clock and resources of a core alone, placed and routed for an FPGA without a board."""

import json
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .shift_chain import CHAIN_MODULE, wrap
from .tools import run, tool

DEVICE = "LFE5UM-85F-8"
_DEVICE_OPTIONS = ("--um-85k", "--package", "CABGA756", "--speed", "8")
# What the device has, and how much of it each cell of a netlist takes.
CAPACITY = {"luts": 83640, "ffs": 83640, "bram": 208, "dsp": 156}
BRAM_BITS = 18 * 1024
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
# The 8 flip-flops of a tile share 2 resets, each pair an enable: with resets and enables of a few
# flip-flops left, of which optimisation makes hundreds, the placer of a full device does not end.
_LEAST_RESET, _LEAST_ENABLE = 30, 8  # flip-flops; those of fewer become logic
# The way into a carry chain and out of it takes as long as some bits in LUTs, which join the logic
# around them.
_LEAST_CARRY = 6  # bits; sums of fewer become logic
_SCRIPT = f"""\
read_verilog -sv core.v chain.v
synth_ecp5 -noflatten -top {CHAIN_MODULE} -run begin:map_gates
techmap -map +/techmap.v t:$alu r:Y_WIDTH<{_LEAST_CARRY} %i
opt_expr
synth_ecp5 -noflatten -top {CHAIN_MODULE} -run map_gates:map_ffs
flatten
opt_clean -purge
opt -full
simplemap
dfflegalize -cell $_DFF_?_ 01 -cell $_DFF_?P?_ r -cell $_SDFF_?P?_ r -cell $_DFFE_??_ 01 \
  -cell $_DFFE_?P??_ r -cell $_SDFFE_?P??_ r -minsrst {_LEAST_RESET} -mince {_LEAST_ENABLE}
synth_ecp5 -top {CHAIN_MODULE} -run map_ffs:map_luts
opt_clean
abc -lut 4
clean
synth_ecp5 -top {CHAIN_MODULE} -run map_cells: -json netlist.json
tee -q -o cells.json stat -json
"""


def synthesise(verilog: str, top: str, folder: Path) -> dict:
    """Map `top` in its shift chain to ECP5: `netlist.json` in `folder`.

    Returns
    -------
    dict
        Resources by name, as in `CAPACITY`.

    Raises
    ------
    ValueError
        If a tool is missing or fails, or the device has less.
    """
    (folder / "core.v").write_text(verilog)
    (folder / "chain.v").write_text(wrap(verilog, top))
    (folder / "synthesis.ys").write_text(_SCRIPT)
    run([tool("yosys"), "-q", "-s", "synthesis.ys"], folder, "synthesis.log")
    cells = json.loads((folder / "cells.json").read_text())["design"]["num_cells_by_type"]
    used = dict.fromkeys(CAPACITY, 0)
    for cell, count in cells.items():
        if cell in _CELLS:
            name, each = _CELLS[cell]
            used[name] += each * count
    check_fit(top, used)
    return used


def check_fit(what: str, used: dict) -> None:
    """Refuse more than the device has.

    Raises
    ------
    ValueError
        Naming every resource that does not suffice.
    """
    short = [f"{used[name]:,} {name} of {room:,}"
             for name, room in CAPACITY.items() if used.get(name, 0) > room]
    if short:
        raise ValueError(f"{what} does not fit into {DEVICE}: it takes {', '.join(short)}")


def route(folder: Path, seed: int, frequency_mhz: int) -> dict:
    """Place and route `netlist.json` with one seed: the router's own report."""
    report = folder / f"report-{seed}.json"
    run([tool("nextpnr-ecp5"), *_DEVICE_OPTIONS, "--json", "netlist.json",
         "--report", report.name, "--seed", str(seed), "--freq", str(frequency_mhz),
         "--lpf-allow-unconstrained", "--timing-allow-fail"], folder, f"route-{seed}.log")
    return json.loads(report.read_text())


def measure(verilog: str, top: str, folder: Path, seeds=(1, 2, 3), frequency_mhz: int = 125,
            say: Callable[[str], None] = lambda text: None) -> dict:
    """Median clock of a core over `seeds`, and the resources that it takes with its chains.

    Seeds are routed side by side, as many as there are cores.

    Parameters
    ----------
    verilog, top : str
        Text, and the module of it.
    folder : Path
        For the files of the tools; must exist.
    seeds : sequence of int
        Of the placement.
    frequency_mhz : int
        That the tools aim at.
    say : callable
        Takes a line of progress.

    Returns
    -------
    dict
        device, fmax_mhz (median), fmax_by_seed, luts, ffs, bram, dsp, seeds, seconds

    Raises
    ------
    ValueError
        If a tool is missing or fails, or the device has less.
    """
    tool("nextpnr-ecp5")  # missing, it is said before the synthesis
    say(f"synthesis of {top} ...")
    began = time.monotonic()
    used = synthesise(verilog, top, folder)
    seconds = {"synthesis": round(time.monotonic() - began, 1), "routing": {}}
    say(", ".join(f"{used[name]:,} {name}" for name in CAPACITY))

    def clock(seed):
        say(f"seed {seed}: placing and routing ...")
        began = time.monotonic()
        clocks = route(folder, seed, frequency_mhz)["fmax"].values()
        if not clocks:
            raise ValueError(f"{top} has no path from register to register")
        fmax = min(each["achieved"] for each in clocks)
        seconds["routing"][str(seed)] = round(time.monotonic() - began, 1)
        say(f"seed {seed}: {fmax:.1f} MHz")
        return fmax

    workers = ThreadPoolExecutor(min(len(seeds), os.cpu_count() or 1))
    try:
        clocks = list(workers.map(clock, seeds))
    finally:
        workers.shutdown(cancel_futures=True)
    return {
        "device": DEVICE,
        "fmax_mhz": round(statistics.median(clocks), 1),
        "fmax_by_seed": {str(seed): round(each, 1) for seed, each in zip(seeds, clocks)},
        **used,
        "seeds": list(seeds),
        "seconds": seconds,
    }
