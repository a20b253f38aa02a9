"""A timer that detects an idle host."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class IdleTimer(wiring.Component):
    """Assert `expired` when `restart` has been low for a number of cycles.

    Parameters
    ----------
    cycles : int
        Cycles until `expired`.

    Attributes
    ----------
    restart : In(1)
    expired : Out(1)
        High after reset.

    Timing
    ------
    `expired` falls in the cycle after `restart`, and rises `cycles` cycles later.
    """

    restart: In(1)
    expired: Out(1)

    def __init__(self, cycles):
        if cycles < 1:
            raise ValueError(f"cycles must be at least 1, not {cycles}")
        self.cycles = cycles
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        cycles_left = Signal(range(self.cycles + 1))
        m.d.comb += self.expired.eq(cycles_left == 0)
        with m.If(self.restart):
            m.d.sync += cycles_left.eq(self.cycles)
        with m.Elif(~self.expired):
            m.d.sync += cycles_left.eq(cycles_left - 1)
        return m
