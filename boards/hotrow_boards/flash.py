"""A bitstream onto a board, with openFPGALoader."""

import shutil
import subprocess
from pathlib import Path

from .board import Board

LOADER = "openFPGALoader"


def flash(board: Board, bitstream: Path, keep: bool = False) -> None:
    """Load a bitstream over the board's USB cable.

    Parameters
    ----------
    board : Board
    bitstream : Path
    keep : bool
        Into the flash memory, so that it outlasts the power.

    Raises
    ------
    ValueError
        If there is no such file, the loader is not installed, or it finds no board.
    """
    if not bitstream.is_file():
        raise ValueError(f"there is no bitstream {bitstream}: build it with "
                         f"`hotrow build --board {board.name} -o {bitstream.parent}`")
    program = shutil.which(LOADER)
    if not program:
        raise ValueError(f"{LOADER} is not installed: apt install openfpgaloader, or your system's "
                         "package of that name, or the OSS CAD Suite")
    command = [program, *board.loader, *(["--write-flash"] if keep else []), str(bitstream)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr + done.stdout).strip().splitlines()
        raise ValueError(
            f"{LOADER} could not load {board.title} ({'; '.join(said[-3:]) or 'it said nothing'}): "
            "is the board connected and powered, and may you use its USB device?")
