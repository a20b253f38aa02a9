"""The design of a board: a card on the board's serial or network pins, at the card's clock."""

from amaranth import ClockDomain, Elaboratable, Module
from amaranth.lib.wiring import connect
from hotrow_rtl.emit.verilog import emit

from .board import Board, Variant
from .card import UartCard, UdpCard
from .clocking import PllClock
from .dram.controller import Controller, generate
from .dram.core import DramCore
from .dram.pins import core_pins, without_idle_terminations
from .ethernet.core import ethernet_verilog
from .ethernet.phy import RgmiiPhy

TOP = "top"


class BoardDesign(Elaboratable):
    """The complete content of the FPGA.

    Parameters
    ----------
    board : Board
    link : str
        One of `Board.links`.
    controller : Controller, optional
        Controller of the board's DRAM, which then replaces block RAM as the card's memory.
    """

    def __init__(self, board: Board, link="uart", controller: Controller | None = None):
        self.board, self.link, self.controller = board, link, controller

    def elaborate(self, platform):
        m = Module()
        board = self.board
        drives_clock = self.controller is not None and board.dram.drives_clock
        m.domains.sync = domain = ClockDomain(reset_less=not drives_clock)
        clock_khz = 1000 * board.clock_mhz
        kind = UdpCard if self.link == "udp" else UartCard
        m.submodules.card = card = kind(
            board.config, self.controller or board.memory_bytes, clock_khz)
        if self.controller:
            m.submodules.dram = dram = DramCore(
                self.controller, core_pins(m, platform, board.dram, domain))
            connect(m, card=card.dram, dram=dram.bus)
        if not drives_clock:
            m.submodules.clock = PllClock(domain, board.clock_mhz)
        if self.link == "udp":
            m.submodules.phy = phy = RgmiiPhy(board.rgmii, clock_khz)
            connect(m, card=card.pins, phy=phy.pins)
        else:
            pins = platform.request("uart", 0)
            m.d.comb += [card.rx.eq(pins.rx.i), pins.tx.o.eq(card.tx)]
        return m


def sources(board: Board, variant: Variant) -> dict[str, str]:
    """The files of a board's design by name: `top.il`, `core.v` and the constraints `top.lpf`.

    Parameters
    ----------
    board : Board
    variant : Variant

    Raises
    ------
    ModuleNotFoundError
        If amaranth-boards is not installed.
    ValueError
        If the board lacks the link or the memory, or the core of either cannot be generated.
    """
    board.check(variant)
    platform, clock_khz = board.make_platform(), 1000 * board.clock_mhz
    platform.ram_instances = True  # memories are instances of the RAM module in the core's Verilog
    verilog, controller = emit(board.config), None
    if variant.link == "udp":
        verilog += ethernet_verilog(variant.station, board.rgmii, clock_khz)
    if variant.memory == "dram":
        controller = generate(board.dram, f"{board.device}{platform.package}C",
                              round(platform.default_clk_frequency / 1e6), board.clock_mhz)
        verilog += controller.verilog
    plan = platform.prepare(BoardDesign(board, variant.link, controller), name=TOP, emit_src=False)
    pins = plan.files[f"{TOP}.lpf"]
    if controller:
        text = pins if isinstance(pins, str) else pins.decode()
        pins = without_idle_terminations(text, board.dram.pins)
    return {"top.il": plan.files[f"{TOP}.il"], "top.lpf": pins, "core.v": verilog}
