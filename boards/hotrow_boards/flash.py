"""Load a bitstream onto a board with openFPGALoader."""

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
        Write the flash memory, where the bitstream survives a power cycle.

    Raises
    ------
    ValueError
        If the file does not exist, the loader is not installed, or the loader fails.
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
        output = (done.stderr + done.stdout).strip().splitlines()
        raise ValueError(
            f"{LOADER} could not load {board.title} ({'; '.join(output[-3:]) or 'no output'}): "
            "check that the board is connected and powered and that you may use its USB device")
