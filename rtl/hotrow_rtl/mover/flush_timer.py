"""FlushTimer: how long the units of an engine stay cleared after a restart."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

MIN_CYCLES = 20  # exceeds the latency of every pipeline without a clear input: AddressPipeline


class FlushTimer(wiring.Component):
    """Assert `clear` from a restart until the ports have drained.

    Attributes
    ----------
    restart : In(1)
        A pulse.
    drained : In(1)
        Nothing is in flight.
    clear : Out(1)
        High from the cycle after `restart` until nothing is in flight, at least 20 cycles.
        Timing: a register, because it resets many units.
    """

    restart: In(1)
    drained: In(1)
    clear: Out(1)

    def elaborate(self, platform):
        m = Module()
        cycles_left = Signal(range(MIN_CYCLES + 1))
        with m.If(self.restart):
            m.d.sync += [self.clear.eq(1), cycles_left.eq(MIN_CYCLES)]
        with m.Elif(cycles_left != 0):
            m.d.sync += cycles_left.eq(cycles_left - 1)
        with m.Elif(self.drained):
            m.d.sync += self.clear.eq(0)
        return m
