"""The boards that `hotrow build` supports, one file each."""

from .ecpix5 import ECPIX5
from .ulx3s import ULX3S
from .ulx3s_45f import ULX3S_45F
from .versa_5g import VERSA_5G

BOARDS = {board.name: board for board in (ECPIX5, VERSA_5G, ULX3S, ULX3S_45F)}


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
