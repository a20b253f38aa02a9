"""A whole simulated board for tests; a process compiles each variant once."""

import functools
import shutil

import pytest
from hotrow_boards.boards import BOARDS
from hotrow_boards.dram.controller import Dram, base_configuration, run_generator
from hotrow_rtl.config import preset

ECP5 = preset("ecp5")
MEMORY_BYTES = 1 << 22
CLOCK_HZ = 12e6  # at 3 Mbaud, four cycles a bit: the fewest that a card can do with
PATIENCE = 120.0  # seconds: a simulated board is slow, and its line loses nothing
# All of the chips, in the largest blocks of a board.
DRAM = Dram(chip="MT41K64M16", lanes=2, chip_bytes=1 << 27, memory_bytes=1 << 27, block_log2=12)
DRAM_CLOCK_MHZ = 50  # of the card; the base of the controller's timing


def needs_compiler():
    """Skip the test if a tool that compiles a simulated board is missing."""
    missing = [tool for tool in ("g++", "make", "perl") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"a simulated board needs {', '.join(missing)}")


@functools.cache
def board_library(config, windows=None):
    """The shared library of a card on a serial line; skips the test if tools are missing.

    With `windows`, its memory is DDR3: see `levelled_dram.levelled_program`; "SDR" is the SDRAM of
    the ULX3S.
    """
    needs_compiler()
    from hotrow_boards.emit import CARD_MODULE, emit_uart_card

    from tests.support.boards import serial_board
    from tests.support.boards.levelled_dram import levelled_program

    if windows is None:
        memory = MEMORY_BYTES
    elif windows == "SDR":
        board = BOARDS["ulx3s"]
        memory = run_generator(["-m", "litedram.gen", "--sim"], board.dram,
                               base_configuration(board.dram, board.clock_mhz))
    else:
        memory = run_generator(
            levelled_program(windows), DRAM, base_configuration(DRAM, DRAM_CLOCK_MHZ))
    return serial_board.board_library(
        emit_uart_card(config, memory, int(CLOCK_HZ / 1000)), CARD_MODULE)


def open_board(config=ECP5, windows=None):
    """A `SerialBoard` with its clock running."""
    from tests.support.boards.serial_board import SerialBoard

    return SerialBoard(board_library(config, windows), CLOCK_HZ)


def open_board_with_dram(windows):
    """`open_board` with DRAM as the card's memory."""
    return open_board(windows=windows)
