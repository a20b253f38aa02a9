"""A whole board in simulation: a card's Verilog, and a pseudo-terminal at its serial pins.

The driver opens the terminal as it would a board's serial line. A thread runs the card's clock.
"""

import ctypes
import os
import select
import termios
import threading
import time
import tty
from contextlib import suppress
from functools import cache
from pathlib import Path

from ..memory.library import cache_folder, compiler
from .cache import digest, locked, publish
from .compilation import FLAGS, compile_model
from .progress import Progress
from .toolchain import find_verilator

HARNESS = Path(__file__).with_name("serial_board.cpp")
MODULE = "card"  # as the harness knows it
BAUD = {getattr(termios, name): int(name[1:]) for name in dir(termios)
        if name[0] == "B" and name[1:].isdigit()}
_SLICE = 2000  # cycles between two looks at the line
_LEAST_CYCLES_PER_BIT = 4
_ROOM = 4096  # bytes
_UNREAD = 1 << 16  # bytes that wait for a host that does not read; more are lost, as on a line
_AWAKE = 0.5  # seconds for which the clock runs on when nothing comes
_ASLEEP = 0.02  # seconds between two slices when nothing came for longer


def board_library(verilog: str, module: str) -> Path:
    """Path of the shared library of a card, built unless the cache has it.

    Parameters
    ----------
    verilog : str
        Of a module with the pins clk, rst, rx and tx.
    module : str
        Its name.

    Raises
    ------
    ToolMissing, CompilerError, BuildError
        As those of a device.
    """
    verilator, command = find_verilator(), compiler()
    library = cache_folder() / ("board-" + digest(
        verilog, module, verilator.version, command, FLAGS, HARNESS) + ".so")
    with locked(library):
        if not library.is_file():
            progress = Progress(module)
            text = f"{verilog}\nmodule {MODULE}(input clk, input rst, input rx, output tx);\n" \
                   f"  {module} board(.clk(clk), .rst(rst), .rx(rx), .tx(tx));\nendmodule\n"
            publish(library, lambda path: compile_model(
                MODULE, text, HARNESS, path, verilator, command, progress))
            progress.done()
    return library


class SerialBoard:
    """A simulated board that runs until it is unplugged; a context manager.

    Parameters
    ----------
    library : Path
        See `board_library`.
    clock_hz : float
        Of the card, against which the rate of the line is reckoned. A small one is quick: few
        cycles pass per byte.

    Members
    -------
    path : str
        The device file to open.
    cycles : int
        Clock cycles so far.
    """

    def __init__(self, library, clock_hz):
        self._library, self._clock_hz = _load(str(library)), clock_hz
        self._board = ctypes.c_void_p(self._library.hotrow_board_open())
        self._card, self._host = os.openpty()
        tty.setraw(self._host)
        os.set_blocking(self._card, False)
        self.path = os.ttyname(self._host)
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
            os.close(self._card)
            os.close(self._host)
            self._library.hotrow_board_close(self._board)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.unplug()

    def _serve(self):
        received, awake_until, unsent = ctypes.create_string_buffer(_ROOM), 0.0, b""
        while self._open:
            asleep = time.monotonic() > awake_until
            ready, _, _ = select.select([self._card], [], [], _ASLEEP if asleep else 0)
            if ready:
                self._library.hotrow_board_rate(self._board, self._cycles_per_bit())
                octets = os.read(self._card, _ROOM)
                self._library.hotrow_board_send(self._board, octets, len(octets))
            came = self._library.hotrow_board_run(self._board, _SLICE, received, _ROOM)
            if ready or came or self._library.hotrow_board_unsent(self._board):
                awake_until = time.monotonic() + _AWAKE
            unsent = (unsent + received.raw[:came])[:_UNREAD]
            if unsent:
                with suppress(BlockingIOError):  # the host does not read
                    unsent = unsent[os.write(self._card, unsent):]

    def _cycles_per_bit(self):
        speed = BAUD.get(termios.tcgetattr(self._host)[5], 0)
        return max(_LEAST_CYCLES_PER_BIT, self._clock_hz / speed) if speed else \
            _LEAST_CYCLES_PER_BIT


@cache
def _load(path):
    """The library with its functions' types declared."""
    library = ctypes.CDLL(path)
    pointer, u64, u32 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32
    for name, result, arguments in (
        ("open", pointer, ()),
        ("close", None, (pointer,)),
        ("rate", None, (pointer, ctypes.c_double)),
        ("send", None, (pointer, ctypes.c_char_p, u32)),
        ("unsent", u32, (pointer,)),
        ("cycles", u64, (pointer,)),
        ("run", u32, (pointer, u64, pointer, u32)),
    ):
        function = getattr(library, f"hotrow_board_{name}")
        function.restype, function.argtypes = result, arguments
    return library
