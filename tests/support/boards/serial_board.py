"""A simulated board with a serial line: a card's Verilog and a pseudo-terminal at its pins.

The driver opens the terminal like the serial line of a board. A thread runs the clock of the card.
"""

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
_UNREAD = 1 << 16  # bytes for a host that does not read; more are lost, as on a line


def board_library(verilog: str, module: str) -> Path:
    """Path of the shared library of a card; see `compile_board`.

    Parameters
    ----------
    verilog : str
        Contains a module with the pins clk, rst, rx and tx.
    module : str
        Name of that module.
    """
    connected = ", ".join(f".{name}({name})" for name in PINS)
    return compile_board(verilog, HARNESS, PINS, f"{module} board({connected});")


class SerialBoard(SimulatedBoard):
    """A simulated board with a serial line.

    Parameters
    ----------
    library : Path
        See `board_library`.
    clock_hz : float
        Clock of the card, which determines its cycles per bit. A low clock simulates fast, with few
        cycles per byte.

    Attributes
    ----------
    path : str
        Device file to open.
    """

    def __init__(self, library, clock_hz):
        self._clock_hz, self._unsent = clock_hz, b""
        self._card, self._host = os.openpty()
        tty.setraw(self._host)
        os.set_blocking(self._card, False)
        self.path = os.ttyname(self._host)
        super().__init__(library, self._card, _LEAST_CYCLES_PER_BIT)

    def _take(self):
        self._library.hotrow_board_rate(self._board, self._cycles_per_bit())
        self._send(os.read(self._card, ROOM))

    def _give(self, octets):
        self._unsent = (self._unsent + octets)[:_UNREAD]
        if self._unsent:
            with suppress(BlockingIOError):  # the host does not read
                self._unsent = self._unsent[os.write(self._card, self._unsent):]

    def _close(self):
        super()._close()
        os.close(self._card)
        os.close(self._host)

    def _cycles_per_bit(self):
        speed = BAUD.get(termios.tcgetattr(self._host)[5], 0)
        return max(_LEAST_CYCLES_PER_BIT, self._clock_hz / speed if speed else 0)
