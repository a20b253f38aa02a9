"""What simulated boards share: a card's Verilog as a library, and a thread for its clock."""

import ctypes
import select
import threading
import time
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path

from ...memory.library import cache_folder, compiler
from ...verilated.cache import digest, locked, publish
from ...verilated.compilation import FLAGS, compile_model
from ...verilated.progress import Progress
from ...verilated.toolchain import find_verilator

MODULE = "card"  # as the harnesses know it
_SLICE = 2000  # cycles between two looks at the line
ROOM = 4096  # bytes
_AWAKE = 0.5  # seconds for which the clock runs on when nothing comes
_ASLEEP = 0.02  # seconds between two slices when nothing came for longer


def compile_board(verilog: str, harness: Path, pins: dict, connections: str) -> Path:
    """Path of the shared library of a card, built unless the cache has it.

    Parameters
    ----------
    verilog : str
    harness : Path
        C++ that drives a module `card`.
    pins : dict of str to str
        Of that module, their names and declarations, "input", "output [3:0]".
    connections : str
        The instance in it.

    Raises
    ------
    ToolMissing, CompilerError, BuildError
        As those of a device.
    """
    verilator, command = find_verilator(), compiler()
    declared = ", ".join(f"{declaration} {name}" for name, declaration in pins.items())
    text = f"{verilog}\nmodule {MODULE}({declared});\n  {connections}\nendmodule\n"
    library = cache_folder() / ("board-" + digest(
        text, verilator.version, command, FLAGS, harness) + ".so")
    with locked(library):
        if not library.is_file():
            progress = Progress(harness.stem)
            publish(library, lambda path: compile_model(
                MODULE, text, harness, path, verilator, command, progress))
            progress.done()
    return library


class SimulatedBoard(ABC):
    """A simulated board that runs until it is unplugged; a context manager.

    A board of a kind gives a file that can be read when something comes from the host, and says
    what is to be done then (`_take`), and when something comes from the card (`_give`).

    Parameters
    ----------
    library : Path
        See `compile_board`.
    file
        With a `fileno`, or such a number.
    parameters : float
        Of the harness's board.

    Members
    -------
    cycles : int
        Clock cycles so far.
    """

    def __init__(self, library, file, *parameters):
        self._library, self._file = _load(str(library)), file
        self._board = ctypes.c_void_p(self._library.hotrow_board_open(
            *map(ctypes.c_double, parameters)))
        self._open = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def cycles(self):
        return self._library.hotrow_board_cycles(self._board)

    def unplug(self):
        """Stop the clock and close the line, whatever is under way."""
        if self._open:
            self._open = False
            self._thread.join()
            self._close()
            self._library.hotrow_board_close(self._board)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.unplug()

    @abstractmethod
    def _take(self):
        """Something came from the host."""

    @abstractmethod
    def _give(self, octets):
        """Something, or nothing, came from the card."""

    @abstractmethod
    def _close(self):
        """Close the line."""

    def _send(self, octets):
        """Let bytes, or a frame, come to the card."""
        self._library.hotrow_board_send(self._board, octets, len(octets))

    def _serve(self):
        received, awake_until = ctypes.create_string_buffer(ROOM), 0.0
        while self._open:
            asleep = time.monotonic() > awake_until
            ready, _, _ = select.select([self._file], [], [], _ASLEEP if asleep else 0)
            if ready:
                self._take()
            came = self._library.hotrow_board_run(self._board, _SLICE, received, ROOM)
            if ready or came or self._library.hotrow_board_unsent(self._board):
                awake_until = time.monotonic() + _AWAKE
            self._give(received.raw[:came])


@cache
def _load(path):
    """The library with the types of the functions that every harness has."""
    library = ctypes.CDLL(path)
    pointer, u64, u32 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32
    library.hotrow_board_open.restype = pointer  # its arguments are those of the harness
    for name, result, arguments in (
        ("close", None, (pointer,)),
        ("send", None, (pointer, ctypes.c_char_p, u32)),
        ("unsent", u32, (pointer,)),
        ("cycles", u64, (pointer,)),
        ("run", u32, (pointer, u64, pointer, u32)),
    ):
        function = getattr(library, f"hotrow_board_{name}")
        function.restype, function.argtypes = result, arguments
    return library
