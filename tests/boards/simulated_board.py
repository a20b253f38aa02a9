"""A whole simulated board for tests: its Verilog built once, a clock for each that opens it."""

import functools
import shutil

import pytest
from hotrow_rtl.config import preset

MEMORY_BYTES = 1 << 22
CLOCK_HZ = 12e6  # at 3 Mbaud, four cycles a bit: the fewest that a card can do with
PATIENCE = 120.0  # seconds: a simulated board is slow, and its line loses nothing


def needs_compiler():
    """Skip where tools are missing that a simulated board is built with."""
    missing = [tool for tool in ("g++", "make", "perl") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"a simulated board needs {', '.join(missing)}")


@functools.cache
def board_library(name):
    """The shared library of a preset on a serial line; skips where tools are missing."""
    needs_compiler()
    from hotrow_boards.emit import CARD_MODULE, emit_uart_card
    from hotrow_sim.verilated import serial_board

    return serial_board.board_library(
        emit_uart_card(preset(name), MEMORY_BYTES, int(CLOCK_HZ / 1000)), CARD_MODULE)


def open_board(name="ecp5-small"):
    """A `SerialBoard` with its clock running, of the preset that the boards carry or another."""
    from hotrow_sim.verilated.serial_board import SerialBoard

    return SerialBoard(board_library(name), CLOCK_HZ)
