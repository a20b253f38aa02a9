"""The boards that `hotrow build` supports, one file each."""

from .ecpix5 import ECPIX5
from .ulx3s import ULX3S

BOARDS = {board.name: board for board in (ECPIX5, ULX3S)}


def find_board(name: str):
    """The board named `name`.

    Raises
    ------
    ValueError
        Naming the known boards.
    """
    if name not in BOARDS:
        raise ValueError(f"unknown board {name!r}: expected one of {', '.join(BOARDS)}")
    return BOARDS[name]
