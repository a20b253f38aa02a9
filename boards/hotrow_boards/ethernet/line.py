"""From a card to the Ethernet PHY of its board."""

from amaranth import Module, Mux, Signal
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In

from .core import LINE_MHZ, rgmii_pins
from .station import Rgmii

_RESET_MS = 20  # gigabit PHYs ask for 10 at the most


class RgmiiLine(wiring.Component):
    """The pins of a PHY, which is held in reset for a while first.

    Its management is not used: it runs as it is strapped on the board.

    Parameters
    ----------
    rgmii : Rgmii
    clock_khz : int

    Members
    -------
    pins : In(rgmii_pins)

    Timing
    ------
    The reset of the PHY ends 20 ms after that of the domain.
    """

    pins: In(rgmii_pins)

    def __init__(self, rgmii: Rgmii, clock_khz):
        self.rgmii, self.clock_khz = rgmii, clock_khz
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        # The pin of the clock by itself, as its constraint is on the pin.
        line = platform.request("eth_rgmii", self.rgmii.number, dir={"rx_clk": "-"})
        platform.add_clock_constraint(line.rx_clk.io, LINE_MHZ * 1e6)
        m.submodules.rx_clk = rx_clk = io.Buffer("i", line.rx_clk)
        rx_ctl, tx_ctl = (
            getattr(line, f"{way}_ctrl", None) or getattr(line, f"{way}_ctl")
            for way in ("rx", "tx"))  # either name is in use
        left = Signal(range(_RESET_MS * self.clock_khz), init=_RESET_MS * self.clock_khz - 1)
        m.d.sync += left.eq(Mux(left == 0, 0, left - 1))
        m.d.comb += [
            self.pins.rx_clk.eq(rx_clk.i),
            self.pins.rx_ctl.eq(rx_ctl.i),
            self.pins.rx_data.eq(line.rx_data.i),
            line.tx_clk.o.eq(self.pins.tx_clk),
            tx_ctl.o.eq(self.pins.tx_ctl),
            line.tx_data.o.eq(self.pins.tx_data),
            line.rst.o.eq(left != 0),
        ]
        return m
