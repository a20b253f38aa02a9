"""The design of a board: a card on the board's serial or network pins, at the card's clock."""

import re

from amaranth import ClockDomain, Elaboratable, Instance, Module, Mux, Signal
from amaranth.build import Subsignal
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In, connect
from hotrow_rtl.emit.verilog import emit

from .board import Board, Variant
from .card import UartCard, UdpCard
from .dram.controller import Controller, Dram, generate
from .dram.core import DramCore
from .ethernet.core import LINE_MHZ, ethernet_verilog, rgmii_pins
from .ethernet.station import Rgmii

TOP = "top"


# (name in LiteDRAM, in the platform); a board has some of them.
_OUTPUTS = (("a", "a"), ("ba", "ba"), ("ras_n", "ras"), ("cas_n", "cas"), ("we_n", "we"),
            ("cke", "clk_en"), ("odt", "odt"), ("dm", "dm"), ("dm", "dqm"), ("cs_n", "cs"),
            ("reset_n", "rst"))
_RESET_MS = 20  # gigabit PHYs need at most 10
_VCO_MHZ = 400, 800  # range of the PLL's oscillator
_LEAST_COMPARED_MHZ = 10  # lowest frequency of the phase detector
_LARGEST_DIVIDER = 128


def pll_dividers(input_mhz: int, output_mhz: int) -> tuple[int, int, int]:
    """Input, feedback and output dividers of a PLL.

    Source: Lattice FPGA-TN-02200 (ECP5 sysCLOCK PLL) and FPGA-DS-02012 (its limits).

    Raises
    ------
    ValueError
        If no dividers give that clock.
    """
    for input_divider in range(1, min(_LARGEST_DIVIDER, input_mhz // _LEAST_COMPARED_MHZ) + 1):
        feedback, rest = divmod(output_mhz * input_divider, input_mhz)
        if rest or not 1 <= feedback <= _LARGEST_DIVIDER:
            continue
        for output_divider in range(_LARGEST_DIVIDER, 0, -1):
            if _VCO_MHZ[0] <= output_mhz * output_divider <= _VCO_MHZ[1]:
                return input_divider, feedback, output_divider
    raise ValueError(f"a PLL makes no {output_mhz} MHz of {input_mhz} MHz")


class PllClock(Elaboratable):
    """Drive a domain from a PLL, and hold all flip-flops at their initial values until it locks.

    The reset uses the FPGA's dedicated network (SGSR): routed as a signal to thousands of
    flip-flops, it would take many wires.

    Parameters
    ----------
    domain : ClockDomain
        Domain without a reset.
    mhz : int
        Frequency of the domain.
    """

    def __init__(self, domain, mhz):
        self.domain, self.mhz = domain, mhz

    def elaborate(self, platform):
        m = Module()
        input_mhz = round(platform.default_clk_frequency / 1e6)
        input_divider, feedback, output_divider = pll_dividers(input_mhz, self.mhz)
        button = Signal()
        if platform.default_rst:
            m.d.comb += button.eq(platform.request(platform.default_rst).i)
        locked = Signal()
        m.submodules.pll = Instance(
            "EHXPLLL",
            p_CLKI_DIV=input_divider, p_CLKFB_DIV=feedback, p_CLKOP_DIV=output_divider,
            p_CLKOP_CPHASE=output_divider // 2, p_CLKOP_FPHASE=0, p_CLKOP_ENABLE="ENABLED",
            p_OUTDIVIDER_MUXA="DIVA", p_FEEDBK_PATH="CLKOP", p_PLLRST_ENA="DISABLED",
            p_INTFB_WAKE="DISABLED", p_STDBY_ENABLE="DISABLED", p_DPHASE_SOURCE="DISABLED",
            i_CLKI=platform.request(platform.default_clk).i, i_CLKFB=self.domain.clk,
            i_RST=0, i_STDBY=0, i_PHASESEL0=0, i_PHASESEL1=0, i_PHASEDIR=0, i_PHASESTEP=0,
            i_PHASELOADREG=0, i_PLLWAKESYNC=0, i_ENCLKOP=0,
            o_CLKOP=self.domain.clk, o_LOCK=locked)
        m.submodules.reset = Instance("SGSR", i_CLK=self.domain.clk, i_GSR=locked & ~button)
        return m


class RgmiiPhy(wiring.Component):
    """Connect the pins of a PHY and reset it.

    The management interface is not used: the board's straps configure the PHY.

    Parameters
    ----------
    rgmii : Rgmii
    clock_khz : int

    Attributes
    ----------
    pins : In(rgmii_pins)

    Timing
    ------
    The reset of the PHY ends 20 ms after the reset of the domain.
    """

    pins: In(rgmii_pins)

    def __init__(self, rgmii: Rgmii, clock_khz):
        self.rgmii, self.clock_khz = rgmii, clock_khz
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        # The clock needs its bare pin, for the constraint.
        pins = platform.request("eth_rgmii", self.rgmii.number, dir={"rx_clk": "-"})
        platform.add_clock_constraint(pins.rx_clk.io, LINE_MHZ * 1e6)
        m.submodules.rx_clk = rx_clk = io.Buffer("i", pins.rx_clk)
        rx_ctl, tx_ctl = (
            getattr(pins, f"{side}_ctrl", None) or getattr(pins, f"{side}_ctl")
            for side in ("rx", "tx"))  # platforms use either name
        cycles = _RESET_MS * self.clock_khz
        cycles_left = Signal(range(cycles), init=cycles - 1)
        m.d.sync += cycles_left.eq(Mux(cycles_left == 0, 0, cycles_left - 1))
        m.d.comb += [
            self.pins.rx_clk.eq(rx_clk.i),
            self.pins.rx_ctl.eq(rx_ctl.i),
            self.pins.rx_data.eq(pins.rx_data.i),
            pins.tx_clk.o.eq(self.pins.tx_clk),
            tx_ctl.o.eq(self.pins.tx_ctl),
            pins.tx_data.o.eq(self.pins.tx_data),
            pins.rst.o.eq(cycles_left != 0),
        ]
        return m


def core_pins(m: Module, platform, dram: Dram, domain: ClockDomain) -> dict:
    """Arguments of the controller's instance on a board.

    Parameters
    ----------
    m : Module
        Receives the driver of an SDR DRAM's clock, which has the frequency of the card's.
    platform
    dram : Dram
    domain : ClockDomain
        Domain of the card. A controller of DDR3 drives it, at half the frequency of the DRAM.
    """
    pads = platform.request(dram.pins, 0, dir={
        each.name: "-" for each in platform.lookup(dram.pins, 0).ios
        if isinstance(each, Subsignal)})
    prefix = "ddram" if dram.drives_clock else "sdram"
    pins = {f"o_{prefix}_{name}": getattr(pads, pin).io
            for name, pin in _OUTPUTS if hasattr(pads, pin)}
    pins[f"io_{prefix}_dq"] = pads.dq.io
    if not dram.drives_clock:
        # Timing: its rising edge is half a cycle after the pins change.
        m.submodules.dram_clock = Instance(
            "ODDRX1F", i_D0=0, i_D1=1, i_SCLK=domain.clk, i_RST=0, o_Q=pads.clk.io)
        return {**pins, "i_clk": domain.clk, "i_rst": 0}
    reset = Signal()
    if platform.default_rst:
        reset = platform.request(platform.default_rst).i
    # nextpnr derives the second pin of a differential pair from the first.
    return {**pins, "o_ddram_clk_p": pads.clk.p, "io_ddram_dqs_p": pads.dqs.p,
            "i_clk": platform.request(platform.default_clk).i, "i_rst": reset,
            "o_user_clk": domain.clk, "o_user_rst": domain.rst}


def without_idle_terminations(constraints: str, resource: str) -> str:
    """Constraints with termination only on the pins that the DRAM drives, dq and dqs."""
    card_outputs = re.compile(rf'IOBUF PORT "{resource}_0__(?!dqs?__).*')
    return card_outputs.sub(
        lambda line: re.sub(r"(TERMINATION|DIFFRESISTOR)=\w+ ?", "", line[0]), constraints)


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
    generated, controller = "", None
    if variant.link == "udp":
        generated += ethernet_verilog(variant.station, board.rgmii, clock_khz)
    if variant.memory == "dram":
        controller = generate(board.dram, f"{board.device}{platform.package}C",
                              round(platform.default_clk_frequency / 1e6), board.clock_mhz)
        generated += controller.verilog
    verilog = emit(board.config) + generated  # last: it takes longest
    plan = platform.prepare(BoardDesign(board, variant.link, controller), name=TOP, emit_src=False)
    pins = plan.files[f"{TOP}.lpf"]
    if controller:
        text = pins if isinstance(pins, str) else pins.decode()
        pins = without_idle_terminations(text, board.dram.pins)
    return {"top.il": plan.files[f"{TOP}.il"], "top.lpf": pins, "core.v": verilog}
