"""The pins of a board's Ethernet PHY."""

from amaranth import Module, Mux, Signal
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In

from .core import LINE_MHZ, rgmii_pins
from .station import Rgmii

_RESET_MS = 20  # gigabit PHYs need at most 10


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
