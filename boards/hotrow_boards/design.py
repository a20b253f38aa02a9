"""The design of a board: a card on the board's serial pins, at the board's clock."""

from amaranth import ClockDomain, Elaboratable, Module
from hotrow_rtl.emit import emit

from .board import Board
from .card import UartCard
from .clocking import PllClock

TOP = "top"


class BoardDesign(Elaboratable):
    """What goes into the FPGA.

    Parameters
    ----------
    board : Board
    """

    def __init__(self, board: Board):
        self.board = board

    def elaborate(self, platform):
        m = Module()
        board = self.board
        m.domains.sync = domain = ClockDomain()
        m.submodules.clock = PllClock(domain, board.clock_mhz)
        m.submodules.card = card = UartCard(
            board.config, board.memory_bytes, 1000 * board.clock_mhz)
        pins = platform.request("uart", 0)
        m.d.comb += [card.rx.eq(pins.rx.i), pins.tx.o.eq(card.tx)]
        return m


def sources(board: Board) -> dict[str, str]:
    """The files of a board's design: `top.il`, `core.v` and the pins' `top.lpf`.

    Raises
    ------
    ModuleNotFoundError
        If amaranth-boards is not installed.
    """
    platform = board.make_platform()
    platform.ram_instances = True  # memories come as in the core's Verilog, which has their module
    plan = platform.prepare(BoardDesign(board), name=TOP, emit_src=False)
    return {"top.il": plan.files[f"{TOP}.il"], "top.lpf": plan.files[f"{TOP}.lpf"],
            "core.v": emit(board.config)}
