"""Span pieces: as many entries as a span has pieces, in place of a list."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class SpanChunks(wiring.Component):
    """Count the pieces of a span.

    Members
    -------
    start : In(1)
        A pulse before each span.
    count : In(32)
        Its pieces, with the pulse.
    valid, last, ready : Out, Out, In
        A stream of pieces, the final one `last`.

    Timing
    ------
    Latency 1 cycle, one piece per cycle.
    """

    start: In(1)
    count: In(32)
    valid: Out(1)
    last: Out(1)
    ready: In(1)

    def elaborate(self, platform):
        m = Module()
        behind = Signal(32)  # the one on offer
        m.d.comb += self.last.eq(behind == 0)
        with m.If(self.start):
            m.d.sync += [self.valid.eq(self.count != 0), behind.eq(self.count - 1)]
        with m.Elif(self.valid & self.ready):
            m.d.sync += [self.valid.eq(~self.last), behind.eq(behind - 1)]
        return m
