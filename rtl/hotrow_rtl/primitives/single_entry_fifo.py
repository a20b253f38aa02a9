"""A FIFO of one payload: a register of `valid` and `ready` of a stream, without multiplexers."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class SingleEntryFifo(wiring.Component):
    """A FIFO of one payload, with the ports of `RamFifo` but `clear`.

    Parameters
    ----------
    shape : ShapeCastable

    Attributes
    ----------
    i : In(stream(shape)), o : Out(stream(shape))
    level : Out(1)

    Timing
    ------
    Latency 1 cycle, one payload every 2 cycles.
    """

    latency = 1

    def __init__(self, shape):
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "level": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.i.ready.eq(~self.o.valid), self.level.eq(self.o.valid)]
        with m.If(~self.o.valid):
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.p.eq(self.i.p)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m
