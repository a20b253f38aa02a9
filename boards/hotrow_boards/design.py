"""The design of a board: a card on the board's serial or network pins, at the board's clock."""

from amaranth import ClockDomain, Elaboratable, Module
from amaranth.lib.wiring import connect
from hotrow_rtl.emit import emit

from .board import Board
from .card import UartCard, UdpCard
from .clocking import PllClock
from .ethernet.core import ethernet_verilog
from .ethernet.line import RgmiiLine
from .ethernet.station import Station

TOP = "top"


class BoardDesign(Elaboratable):
    """What goes into the FPGA.

    Parameters
    ----------
    board : Board
    link : str
        One of the board's.
    """

    def __init__(self, board: Board, link="uart"):
        self.board, self.link = board, link

    def elaborate(self, platform):
        m = Module()
        board = self.board
        m.domains.sync = domain = ClockDomain()
        m.submodules.clock = PllClock(domain, board.clock_mhz)
        clock_khz = 1000 * board.clock_mhz
        kind = UdpCard if self.link == "udp" else UartCard
        m.submodules.card = card = kind(board.config, board.memory_bytes, clock_khz)
        if self.link == "udp":
            m.submodules.line = line = RgmiiLine(board.rgmii, clock_khz)
            connect(m, card=card.pins, line=line.pins)
        else:
            pins = platform.request("uart", 0)
            m.d.comb += [card.rx.eq(pins.rx.i), pins.tx.o.eq(card.tx)]
        return m


def sources(board: Board, link: str = "uart", station: Station | None = None) -> dict[str, str]:
    """The files of a board's design: `top.il`, `core.v` and the pins' `top.lpf`.

    Parameters
    ----------
    board : Board
    link : str
    station : Station, optional
        Of a card whose link is "udp".

    Raises
    ------
    ModuleNotFoundError
        If amaranth-boards is not installed.
    ValueError
        If the board has no such link, or as `ethernet_verilog`.
    """
    board.check_link(link)
    platform = board.make_platform()
    platform.ram_instances = True  # memories come as in the core's Verilog, which has their module
    verilog = emit(board.config)
    if link == "udp":
        verilog += ethernet_verilog(station or Station(), board.rgmii, 1000 * board.clock_mhz)
    plan = platform.prepare(BoardDesign(board, link), name=TOP, emit_src=False)
    return {"top.il": plan.files[f"{TOP}.il"], "top.lpf": plan.files[f"{TOP}.lpf"],
            "core.v": verilog}
