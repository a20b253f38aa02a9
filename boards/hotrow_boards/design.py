"""The design of a board: a card on the board's serial pins, at the board's clock."""

from amaranth import ClockDomain, Elaboratable, Module
from amaranth.lib.wiring import connect
from hotrow_rtl.emit import emit

from .board import Board
from .card import UartCard
from .clocking import PllClock
from .dram.controller import Controller, generate
from .dram.core import DramCore
from .dram.pins import core_pins, without_idle_terminations

TOP = "top"


class BoardDesign(Elaboratable):
    """What goes into the FPGA.

    Parameters
    ----------
    board : Board
    controller : Controller, optional
        Of the board's DRAM, which is then the card's memory in place of block RAM.
    """

    def __init__(self, board: Board, controller: Controller | None = None):
        self.board, self.controller = board, controller

    def elaborate(self, platform):
        m = Module()
        board = self.board
        m.domains.sync = domain = ClockDomain()
        m.submodules.card = card = UartCard(
            board.config, self.controller or board.memory_bytes, 1000 * board.clock_mhz)
        if self.controller:
            m.submodules.dram = dram = DramCore(
                self.controller, core_pins(platform, board.dram.pins, domain))
            connect(m, card=card.dram, dram=dram.bus)
        else:
            m.submodules.clock = PllClock(domain, board.clock_mhz)
        pins = platform.request("uart", 0)
        m.d.comb += [card.rx.eq(pins.rx.i), pins.tx.o.eq(card.tx)]
        return m


def sources(board: Board, memory: str = "block") -> dict[str, str]:
    """The files of a board's design: `top.il`, `core.v` and the pins' `top.lpf`.

    Parameters
    ----------
    board : Board
    memory : str
        "block", or "dram": see `Board.memories`.

    Raises
    ------
    ModuleNotFoundError
        If amaranth-boards is not installed.
    ValueError
        If the board has no such memory, or its controller cannot be generated.
    """
    if memory not in board.memories:
        raise ValueError(f"{board.title} has no memory {memory!r} for the card: expected "
                         f"{' or '.join(board.memories)}")
    platform = board.make_platform()
    platform.ram_instances = True  # memories come as in the core's Verilog, which has their module
    verilog, controller = emit(board.config), None
    if memory == "dram":
        controller = generate(board.dram, f"{board.device}{platform.package}C",
                              round(platform.default_clk_frequency / 1e6), board.clock_mhz)
        verilog += controller.verilog
    plan = platform.prepare(BoardDesign(board, controller), name=TOP, emit_src=False)
    pins = plan.files[f"{TOP}.lpf"]
    if controller:
        text = pins if isinstance(pins, str) else pins.decode()
        pins = without_idle_terminations(text, board.dram.pins)
    return {"top.il": plan.files[f"{TOP}.il"], "top.lpf": pins, "core.v": verilog}
