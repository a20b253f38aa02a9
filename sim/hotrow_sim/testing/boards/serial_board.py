"""A whole board in simulation: a card's Verilog, and a pseudo-terminal at its serial pins.

The driver opens the terminal as it would a board's serial line. A thread runs the card's clock.
"""

import ctypes
import os
import termios
import tty
from contextlib import suppress
from pathlib import Path

from .board import ROOM, SimulatedBoard, compile_board

HARNESS = Path(__file__).with_name("serial_board.cpp")
PINS = {"clk": "input", "rst": "input", "rx": "input", "tx": "output"}
BAUD = {getattr(termios, name): int(name[1:]) for name in dir(termios)
        if name[0] == "B" and name[1:].isdigit()}
_LEAST_CYCLES_PER_BIT = 4
_UNREAD = 1 << 16  # bytes that wait for a host that does not read; more are lost, as on a line


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
    connected = ", ".join(f".{name}({name})" for name in PINS)
    return compile_board(verilog, HARNESS, PINS, f"{module} board({connected});")


class SerialBoard(SimulatedBoard):
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
        self._clock_hz, self._unsent = clock_hz, b""
        self._card, self._host = os.openpty()
        tty.setraw(self._host)
        os.set_blocking(self._card, False)
        self.path = os.ttyname(self._host)
        super().__init__(library, self._card)

    def _take(self):
        self._library.hotrow_board_rate(self._board, ctypes.c_double(self._cycles_per_bit()))
        self._send(os.read(self._card, ROOM))

    def _give(self, octets):
        self._unsent = (self._unsent + octets)[:_UNREAD]
        if self._unsent:
            with suppress(BlockingIOError):  # the host does not read
                self._unsent = self._unsent[os.write(self._card, self._unsent):]

    def _close(self):
        os.close(self._card)
        os.close(self._host)

    def _cycles_per_bit(self):
        speed = BAUD.get(termios.tcgetattr(self._host)[5], 0)
        return max(_LEAST_CYCLES_PER_BIT, self._clock_hz / speed) if speed else \
            _LEAST_CYCLES_PER_BIT
