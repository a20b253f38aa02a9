"""Ping-pong buffer: two registers in turn, none of which waits to hear what moves."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class PingPong(wiring.Component):
    """Pass a stream on as `SkidBuffer` does, cycle for cycle, with an output that is chosen, not loaded.

    For a wide payload whose `ready` is late: that reaches three registers of a bit, where that of
    a `SkidBuffer` reaches all of the payload's. In turn the payload comes a choice later.

    Parameters
    ----------
    width : int
        Bits of the payload.

    Members
    -------
    i : In(stream(width))
        Its `ready` is a register.
    o : Out(stream(width))
        Its `valid` is a register.

    Timing
    ------
    Latency 1 cycle, one payload a cycle.
    """

    latency = 1

    def __init__(self, width):
        super().__init__({"i": In(stream.Signature(width)), "o": Out(stream.Signature(width))})

    def elaborate(self, platform):
        m = Module()
        held = [Signal.like(self.o.p, name=f"held{turn}", reset_less=True) for turn in range(2)]
        ready, writes, reads = Signal(init=1), Signal(), Signal()  # and whose turn it is
        comes, goes = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(ready),
            comes.eq(self.i.valid & ready),
            goes.eq(self.o.valid & self.o.ready),
            self.o.p.eq(Mux(reads, held[1], held[0])),
        ]
        m.d.sync += [
            writes.eq(writes ^ comes),
            reads.eq(reads ^ goes),
            # Of two at most: full stays full, and empty empty, unless one goes or comes.
            ready.eq(goes | ready & ~(comes & self.o.valid)),
            self.o.valid.eq(comes | self.o.valid & ~(goes & ready)),
        ]
        for turn, each in enumerate(held):
            with m.If(ready & (writes == turn)):  # a payload or what is none: it has room
                m.d.sync += each.eq(self.i.p)
        return m
