"""The boards that `hotrow build` supports: a file each."""

from pathlib import Path

from ..board import Board
from ..board_file import SUFFIX, load

BOARDS = {board.name: board for board in map(load, sorted(Path(__file__).parent.glob("*.toml")))}


def find_board(name: str) -> Board:
    """The board of that name, or that a file describes.

    Raises
    ------
    ValueError
        Naming the known boards, or what is wrong in the file.
    """
    if name.endswith(SUFFIX):
        return load(Path(name))
    if name not in BOARDS:
        raise ValueError(f"unknown board {name!r}: expected one of {', '.join(BOARDS)}, or a file "
                         f"that ends in {SUFFIX}")
    return BOARDS[name]
