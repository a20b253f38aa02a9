"""Base of simulated boards: a card's Verilog as a library, and a thread that runs its clock."""

import ctypes
import select
import time
from abc import abstractmethod
from functools import cache
from pathlib import Path

from hotrow_sim.verilated.compilation import model_library

from ..link.served import Served

MODULE = "card"  # name in the harnesses
ROOM = 4096  # bytes
_SLICE = 2000  # cycles between two polls of the line
_AWAKE = 0.5  # seconds without traffic for which the clock runs at full speed
_ASLEEP = 0.02  # seconds between two slices after that


def compile_board(verilog: str, harness: Path, pins: dict, instance: str) -> Path:
    """Path of the shared library of a card, built unless the cache has it.

    Parameters
    ----------
    verilog : str
    harness : Path
        C++ that drives a module `card`.
    pins : dict of str to str
        Declaration by name of the pins of that module, such as "input" or "output [3:0]".
    instance : str
        Verilog of the instance in that module.

    Raises
    ------
    ToolMissing, CompilerError, BuildError
    """
    declared = ", ".join(f"{declaration} {name}" for name, declaration in pins.items())
    text = f"{verilog}\nmodule {MODULE}({declared});\n  {instance}\nendmodule\n"
    return model_library(f"board-{harness.stem}", MODULE, text, harness)


class SimulatedBoard(Served):
    """A simulated board that runs until it is unplugged.

    A subclass supplies a file that is readable when the host has sent something, and handles data
    from the host (`_take`) and from the card (`_give`).

    Parameters
    ----------
    library : Path
        See `compile_board`.
    file
        Number of the file, or an object with `fileno`.
    rate : float
        Clock cycles of the line per cycle of the card, or cycles of the card per bit.

    Attributes
    ----------
    cycles : int
        Clock cycles so far.
    """

    def __init__(self, library, file, rate):
        self._library, self._file = _load(str(library)), file
        self._board = ctypes.c_void_p(self._library.hotrow_board_open(rate))
        super().__init__()

    @property
    def cycles(self):
        return self._library.hotrow_board_cycles(self._board)

    @abstractmethod
    def _take(self):
        """Read data from the host."""

    @abstractmethod
    def _give(self, octets):
        """Handle bytes from the card, possibly none."""

    def _close(self):
        self._library.hotrow_board_close(self._board)

    def _send(self, octets):
        """Send bytes, or a frame, to the card."""
        self._library.hotrow_board_send(self._board, octets, len(octets))

    def _serve(self):
        received, awake_until = ctypes.create_string_buffer(ROOM), 0.0
        while self._open:
            asleep = time.monotonic() > awake_until
            ready, _, _ = select.select([self._file], [], [], _ASLEEP if asleep else 0)
            if ready:
                self._take()
            count = self._library.hotrow_board_run(self._board, _SLICE, received, ROOM)
            if ready or count or self._library.hotrow_board_unsent(self._board):
                awake_until = time.monotonic() + _AWAKE
            self._give(received.raw[:count])


@cache
def _load(path):
    """The library with the types of its functions."""
    library = ctypes.CDLL(path)
    pointer, u64, u32, real = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_double
    for name, result, arguments in (
        ("open", pointer, (real,)),
        ("close", None, (pointer,)),
        ("rate", None, (pointer, real)),
        ("send", None, (pointer, ctypes.c_char_p, u32)),
        ("unsent", u32, (pointer,)),
        ("cycles", u64, (pointer,)),
        ("run", u32, (pointer, u64, pointer, u32)),
    ):
        function = getattr(library, f"hotrow_board_{name}")
        function.restype, function.argtypes = result, arguments
    return library
