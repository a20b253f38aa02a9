"""Clock and resources of a core placed and routed for an FPGA without a board."""

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hotrow_boards.board import CAPACITIES
from hotrow_boards.routing import place_and_route
from hotrow_boards.synthesis import check_fit, map_cells
from hotrow_boards.tools import tool

from .shift_chain import CHAIN_MODULE, wrap

DEVICE = "LFE5UM-85F-8"
_DEVICE_OPTIONS = ("--um-85k", "--package", "CABGA756", "--speed", "8")
CAPACITY = CAPACITIES["85F"]
BRAM_BITS = 18 * 1024


def measure(verilog: str, top: str, folder: Path, seeds=(1, 2, 3), frequency_mhz: int = 125,
            say: Callable[[str], None] = lambda text: None) -> dict:
    """Median clock of a core over `seeds`, and the resources of the core in its shift chain.

    Seeds are placed and routed in parallel, one per processor.

    Parameters
    ----------
    verilog : str
    top : str
        Module of the core in `verilog`.
    folder : Path
        Existing folder for the files of the tools.
    seeds : sequence of int
        Seeds of the placement.
    frequency_mhz : int
        Clock that the tools aim at.
    say : callable
        Receives each line of progress.

    Returns
    -------
    dict
        device, fmax_mhz (median), fmax_by_seed, luts, ffs, bram, dsp, seeds, seconds

    Raises
    ------
    ValueError
        If a tool is missing or fails, or the core does not fit into the device.
    """
    tool("nextpnr-ecp5")  # report a missing tool before the synthesis
    say(f"synthesis of {top} ...")
    began = time.monotonic()
    (folder / "core.v").write_text(verilog)
    (folder / "chain.v").write_text(wrap(verilog, top))
    used = map_cells(["read_verilog -sv core.v chain.v"], CHAIN_MODULE, folder)
    check_fit(top, used, DEVICE, CAPACITY)
    seconds = {"synthesis": round(time.monotonic() - began, 1), "routing": {}}
    say(", ".join(f"{used[name]:,} {name}" for name in CAPACITY))

    def clock(seed):
        say(f"seed {seed}: placing and routing ...")
        began = time.monotonic()
        report = place_and_route(folder, seed, *_DEVICE_OPTIONS, "--freq", str(frequency_mhz),
                                 "--lpf-allow-unconstrained")
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
        "fmax_by_seed": {str(seed): round(fmax, 1)
                         for seed, fmax in zip(seeds, clocks, strict=True)},
        **used,
        "seeds": list(seeds),
        "seconds": seconds,
    }
