"""From a board to its bitstream, with the open tools."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from .board import Board
from .synthesis import check_fit, synthesis_script, used_resources
from .tools import run, tool

TOOLS = ("yosys", "nextpnr-ecp5", "ecppack")


def build(board: Board, folder: Path, seed: int = 1,
          say: Callable[[str], None] = lambda text: None, memory: str = "block") -> dict:
    """Build the bitstream of a board.

    Parameters
    ----------
    board : Board
    folder : Path
        For the files of the tools; must exist.
    seed : int
        Of the placement.
    say : callable
        Takes a line of progress.
    memory : str
        One of `Board.memories`.

    Returns
    -------
    dict
        board, memory, device, luts, ffs, bram, dsp, fmax_mhz (of the slowest clock after routing,
        if it were the card's), clock_mhz, bitstream (path), bitstream_bytes, seed, seconds

    Raises
    ------
    ValueError
        If a tool is missing or fails, or the design does not fit or is too slow for the board.
    ModuleNotFoundError
        If amaranth-boards is not installed.
    """
    programs = {name: tool(name) for name in TOOLS}  # a missing one is said before all work
    began, seconds = time.monotonic(), {}

    def done(step):
        nonlocal began
        seconds[step] = round(time.monotonic() - began, 1)
        began = time.monotonic()

    say(f"writing the design of {board.title} ...")
    write_design(board, folder, memory)
    done("design")
    say("synthesis ...")
    used = synthesise(board, folder)
    done("synthesis")
    say(", ".join(f"{count:,} {name}" for name, count in used.items()))
    say("placing and routing ...")
    run([programs["nextpnr-ecp5"], *board.options, "--json", "netlist.json", "--lpf", "top.lpf",
         "--textcfg", "top.config", "--report", "report.json", "--seed", str(seed),
         "--router", "router2", "--timing-allow-fail"], folder, "routing.log")
    fmax = _slowest(json.loads((folder / "report.json").read_text()), board.clock_mhz)
    done("routing")
    say(f"{fmax:.1f} MHz")
    if fmax < board.clock_mhz:
        raise ValueError(f"{board.title} needs {board.clock_mhz} MHz, and the routed design "
                         f"reaches {fmax:.1f}: try another --seed")
    bitstream = folder / f"hotrow-{board.name}.bit"
    run([programs["ecppack"], "--compress", "top.config", bitstream.name], folder, "packing.log")
    done("packing")
    return {"board": board.name, "memory": memory, "device": board.device, **used,
            "fmax_mhz": round(fmax, 1), "clock_mhz": board.clock_mhz, "bitstream": str(bitstream),
            "bitstream_bytes": bitstream.stat().st_size, "seed": seed, "seconds": seconds}


def write_design(board: Board, folder: Path, memory: str = "block") -> None:
    """Write the sources of a board's design, and `synthesis.ys` for Yosys."""
    from .design import TOP, sources  # Amaranth is loaded only where it is needed

    write_files(sources(board, memory), folder)
    (folder / "synthesis.ys").write_text(
        synthesis_script(["read_rtlil top.il", "read_verilog -sv core.v"], TOP))


def write_files(files: dict, folder: Path) -> None:
    """Write text or bytes by name."""
    for name, text in files.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def synthesise(board: Board, folder: Path) -> dict:
    """Map what `write_design` wrote: `netlist.json`.

    Returns
    -------
    dict
        Resources by name.

    Raises
    ------
    ValueError
        If the tool is missing or fails, or the device has less.
    """
    run([tool("yosys"), "-q", "-s", "synthesis.ys"], folder, "synthesis.log")
    used = used_resources(folder / "cells.json")
    check_fit(f"{board.config.name} on {board.title}", used, board.device, board.capacity)
    return used


def _slowest(report, clock_mhz):
    """The clock that the design reaches: that of the card, or if another falls shorter of what it
    has to reach, that one in proportion."""
    clocks = [each["achieved"] * clock_mhz / each.get("constraint", clock_mhz)
              for each in report["fmax"].values()]
    if not clocks:
        raise ValueError("the routed design has no path from register to register")
    return min(clocks)
