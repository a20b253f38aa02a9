"""Build the bitstream of a board with the open tools."""

import time
from collections.abc import Callable
from dataclasses import asdict
from math import floor
from pathlib import Path

from .board import Board, Variant
from .routing import NotRouted, place_and_route
from .synthesis import check_fit, map_cells
from .tools import run, tool

TOOLS = ("yosys", "nextpnr-ecp5", "ecppack")


def build(board: Board, folder: Path, seeds=(1, 2, 3),
          say: Callable[[str], None] = lambda text: None, variant: Variant | None = None) -> dict:
    """Build the bitstream of a board by the first seed with which every clock is fast enough.

    Parameters
    ----------
    board : Board
    folder : Path
        Existing folder for the files of the tools.
    seeds : sequence of int
        Seeds of the placement, tried in order.
    say : callable
        Receives each line of progress.
    variant : Variant, optional

    Returns
    -------
    dict
        board, link, memory, device, planner, arithmetic, luts, ffs, bram, dsp, fmax_mhz (the
        card's clock after routing), clock_mhz, clocks (fmax_mhz and needed_mhz of each), bitstream
        (path), bitstream_bytes, seed, seconds; with the link "udp" also address and mac

    Raises
    ------
    ValueError
        If the board lacks the link or the memory, a tool is missing or fails, or the design does
        not fit, or with every seed is not routed or too slow for the board.
    ModuleNotFoundError
        If amaranth-boards is not installed.
    """
    variant = variant or Variant()
    board.check(variant)
    programs = {name: tool(name) for name in TOOLS}  # report a missing tool before any work
    began, seconds = time.monotonic(), {}

    def done(step):
        nonlocal began
        seconds[step] = round(time.monotonic() - began, 1)
        began = time.monotonic()

    say(f"writing the design of {board.title} ...")
    write_design(board, folder, variant)
    done("design")
    say("synthesis ...")
    used = synthesise(board, folder)
    done("synthesis")
    say(", ".join(f"{count:,} {name}" for name, count in used.items()))
    for seed in seeds:
        say(f"seed {seed}: placing and routing ...")
        try:
            clocks = _routed(board, folder, seed, say)
            break
        except NotRouted as failure:
            say(f"seed {seed}: {failure}")
            if seed == seeds[-1]:
                raise
    done("routing")
    bitstream = folder / f"hotrow-{board.name}.bit"
    run([programs["ecppack"], "--compress", "top.config", bitstream.name], folder, "packing.log")
    done("packing")
    reached = [clock["fmax_mhz"] for clock in clocks.values()
               if clock["needed_mhz"] == board.clock_mhz]
    station = asdict(variant.station) if variant.link == "udp" else {}
    return {"board": board.name, "link": variant.link, "memory": variant.memory, **station,
            "device": board.device, "planner": board.config.planner,
            "arithmetic": board.config.arithmetic, **used, "fmax_mhz": min(reached),
            "clock_mhz": board.clock_mhz, "clocks": clocks, "bitstream": str(bitstream),
            "bitstream_bytes": bitstream.stat().st_size, "seed": seed, "seconds": seconds}


def _routed(board, folder, seed, say):
    """Achieved and required MHz of each clock; NotRouted if one is too slow."""
    report = place_and_route(folder, seed, *board.options, "--lpf", "top.lpf",
                             "--textcfg", "top.config")
    clocks = _clocks(report, board.clock_mhz)
    for name, clock in clocks.items():
        say(f"seed {seed}: {clock['fmax_mhz']} MHz of {clock['needed_mhz']}: {name}")
    for name, clock in clocks.items():
        if clock["fmax_mhz"] < clock["needed_mhz"]:
            raise NotRouted(
                f"{board.title} needs {clock['needed_mhz']} MHz, and the routed design reaches "
                f"{clock['fmax_mhz']} at {name}: try other --seeds")
    return clocks


def write_design(board: Board, folder: Path, variant: Variant | None = None) -> None:
    """Write the sources of a board's design."""
    from .design import sources  # imports Amaranth

    write_files(sources(board, variant or Variant()), folder)


def write_files(files: dict, folder: Path) -> None:
    """Write files of text or bytes, by name."""
    for name, text in files.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def synthesise(board: Board, folder: Path) -> dict:
    """Map the sources that `write_design` wrote to `netlist.json`.

    Returns
    -------
    dict
        Units of each resource that the netlist takes.

    Raises
    ------
    ValueError
        If Yosys is missing or fails, or the design does not fit into the device.
    """
    from .design import TOP

    used = map_cells(["read_rtlil top.il", "read_verilog -sv core.v"], TOP, folder)
    check_fit(f"{board.config.name} on {board.title}", used, board.device, board.capacity)
    return used


def _clocks(report, clock_mhz):
    """Achieved and required MHz of each clock."""
    clocks = {name.removeprefix("$glbnet$"): {
        "fmax_mhz": floor(10 * each["achieved"]) / 10,
        "needed_mhz": round(each.get("constraint", clock_mhz), 1),
    } for name, each in report["fmax"].items()}
    if clock_mhz not in (clock["needed_mhz"] for clock in clocks.values()):
        raise ValueError("the routed design has no path from register to register at "
                         f"{clock_mhz} MHz, the clock of the card")
    return clocks
