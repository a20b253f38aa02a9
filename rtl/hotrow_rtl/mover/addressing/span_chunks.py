"""SpanChunks: the chunks of a span in place of a list of rows."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class SpanChunks(wiring.Component):
    """Count the chunks of a span.

    Attributes
    ----------
    start : In(1)
        A pulse before each span.
    count : In(32)
        Number of chunks, with `start`.
    valid, last, ready : Out, Out, In
        A stream of chunks; `last` marks the final one.

    Timing
    ------
    Latency 1 cycle, one chunk per cycle.
    """

    start: In(1)
    count: In(32)
    valid: Out(1)
    last: Out(1)
    ready: In(1)

    def elaborate(self, platform):
        m = Module()
        remaining = Signal(32)  # after the current chunk
        m.d.comb += self.last.eq(remaining == 0)
        with m.If(self.start):
            m.d.sync += [self.valid.eq(self.count != 0), remaining.eq(self.count - 1)]
        with m.Elif(self.valid & self.ready):
            m.d.sync += [self.valid.eq(~self.last), remaining.eq(remaining - 1)]
        return m
