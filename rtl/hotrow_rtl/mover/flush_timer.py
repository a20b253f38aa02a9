"""Port flush: how long the parts of an engine stay cleared after a restart."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

LEAST_CYCLES = 20  # more than any pipeline that empties itself, see AddressPipeline


class FlushTimer(wiring.Component):
    """Clear from a restart until the ports have drained.

    Members
    -------
    restart : In(1)
        A pulse.
    drained : In(1)
        Nothing is in flight.
    clear : Out(1)
        High from the cycle behind `restart` on until nothing is in flight, at least 20 cycles. A
        register, for the many that it resets.
    """

    restart: In(1)
    drained: In(1)
    clear: Out(1)

    def elaborate(self, platform):
        m = Module()
        left = Signal(range(LEAST_CYCLES + 1))
        with m.If(self.restart):
            m.d.sync += [self.clear.eq(1), left.eq(LEAST_CYCLES)]
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.Elif(self.drained):
            m.d.sync += self.clear.eq(0)
        return m
