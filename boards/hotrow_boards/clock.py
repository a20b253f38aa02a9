"""Clock and resources of a core alone, placed and routed for an FPGA without a board."""

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .board import ECP5_85
from .fanout import divide_nets
from .ram_sites import place_rams
from .routing import place_and_route
from .shift_chain import CHAIN_MODULE, wrap
from .synthesis import check_fit, map_cells
from .tools import tool

DEVICE = "LFE5UM-85F-8"
_DEVICE_OPTIONS = ("--um-85k", "--package", "CABGA756", "--speed", "8")
CAPACITY = ECP5_85
BRAM_BITS = 18 * 1024
# Of a large design: bits of a row, and rows, from which on memories are block RAMs. A LUT RAM takes
# more wires than anything else of its size.
_BLOCKS = ((60, 32), (200, 0))


def synthesise(verilog: str, top: str, folder: Path) -> dict:
    """Map `top` in its shift chain to ECP5: `netlist.json` in `folder`.

    For area what fills more than half of the device even so, which takes minutes; all else for the
    clock, every path as short as it can be.

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
    reads = ["read_verilog -sv core.v chain.v"]
    used = map_cells(reads, CHAIN_MODULE, folder, blocks=_BLOCKS, arrange=_place_rams)
    if not _is_large(used):
        used = map_cells(reads, CHAIN_MODULE, folder, shallow=True, arrange=_divide)
    check_fit(top, used, DEVICE, CAPACITY)
    return used


def _divide(module, used):
    """Divide large nets, which take most of a cycle, and place block RAMs. The nets of a large
    design stay whole: the flip-flops of a tile share what enables and resets them, and with copies
    of that too few places are left.
    """
    divide_nets(module)
    _place_rams(module, used)


def _place_rams(module, used):
    """Place block RAMs close to what they work with."""
    if used["bram"] <= CAPACITY["bram"]:
        place_rams(module, CAPACITY["bram"])


def _is_large(used):
    return 2 * used["luts"] > CAPACITY["luts"]


def measure(verilog: str, top: str, folder: Path, seeds=(1, 2, 3), frequency_mhz: int = 125,
            refined: bool | None = None, say: Callable[[str], None] = lambda text: None) -> dict:
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
    refined : bool, optional
        Placements are refined before they are routed (see `refine`). Default: those of what fills
        more than half of the device, whose routing hardly ends otherwise.
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
    if refined is None:
        refined = _is_large(used)

    period = round(1e6 / frequency_mhz)

    def better(seed, placed, out):
        from .refine.schedule import refine  # what compiles it is loaded only where it is needed

        with (folder / f"refining-{seed}.log").open("w") as log:
            figures = refine(placed, out, seed, period, CAPACITY["bram"],
                             lambda text: print(text, file=log, flush=True))
        say(f"seed {seed}: placed at {figures['before']['mhz']} MHz by estimate, refined to "
            f"{figures['after']['mhz']} MHz; routing ...")

    def clock(seed):
        say(f"seed {seed}: placing{'' if refined else ' and routing'} ...")
        began = time.monotonic()
        report = place_and_route(
            folder, seed, *_DEVICE_OPTIONS, "--freq", str(frequency_mhz),
            "--lpf-allow-unconstrained",
            refine=(lambda *files: better(seed, *files)) if refined else None)
        clocks = report["fmax"].values()
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
