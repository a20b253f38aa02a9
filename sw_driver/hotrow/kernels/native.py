"""The compiled library: the engine of the transport `cpu`, and the passes over a batch."""

import ctypes
from functools import cache
from pathlib import Path

from . import compiler

_FOLDER = Path(__file__).parent


def sources() -> list[Path]:
    """The C++ sources of the library."""
    return sorted(_FOLDER.glob("*.cpp")) + sorted(_FOLDER.glob("engine/*.cpp"))


def headers() -> list[Path]:
    """What the sources include."""
    return [*sorted(_FOLDER.glob("*.hpp")), *sorted(_FOLDER.glob("engine/*.h*"))]


@cache
def native_library() -> ctypes.CDLL:
    """The library, compiled by the first call where it was not compiled before.

    Raises
    ------
    Error
        There is no compiler, or it failed: with its message.
    """
    return compiler.load("hotrow", sources(), headers())
