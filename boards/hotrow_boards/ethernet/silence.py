"""Whether a host has been silent for long."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Silence(wiring.Component):
    """Time since something was heard.

    Parameters
    ----------
    cycles : int
        After which it is long.

    Members
    -------
    heard : In(1)
    long : Out(1)

    Timing
    ------
    `long` falls in the cycle after `heard`, and rises `cycles` cycles later.
    """

    heard: In(1)
    long: Out(1)

    def __init__(self, cycles):
        if cycles < 1:
            raise ValueError(f"cycles must be at least 1, not {cycles}")
        self.cycles = cycles
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        left = Signal(range(self.cycles + 1))
        m.d.comb += self.long.eq(left == 0)
        with m.If(self.heard):
            m.d.sync += left.eq(self.cycles)
        with m.Elif(~self.long):
            m.d.sync += left.eq(left - 1)
        return m
