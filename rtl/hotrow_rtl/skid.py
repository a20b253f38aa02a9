"""Skid: registers that end a chain of `ready` signals."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class Skid(wiring.Component):
    """Pass a stream on through a register, with a second one for what comes when it is stopped.

    Parameters
    ----------
    width : int
        Bits of the payload.
    rigid : bool
        Nothing moves in `o` while its `ready` is low, even if it is empty: for a pipeline whose
        stages all advance together.

    Members
    -------
    i : In(stream(width))
        Its `ready` is a register.
    o : Out(stream(width))

    Timing
    ------
    Latency 1 cycle, one payload a cycle.
    """

    latency = 1

    def __init__(self, width, *, rigid=False):
        self.rigid = rigid
        super().__init__({"i": In(stream.Signature(width)), "o": Out(stream.Signature(width))})

    def elaborate(self, platform):
        m = Module()
        # That it is empty, not that it is full, as `ready` moves the many registers before it.
        spare, empty = Signal.like(self.o.p, reset_less=True), Signal(init=1)
        m.d.comb += self.i.ready.eq(empty)
        with m.If(self.o.ready if self.rigid else ~self.o.valid | self.o.ready):
            m.d.sync += [
                self.o.valid.eq(~empty | self.i.valid),
                self.o.p.eq(self.i.p),
                empty.eq(1),
            ]
            with m.If(~empty):
                m.d.sync += self.o.p.eq(spare)
        with m.Elif(self.i.valid):
            m.d.sync += empty.eq(0)
        with m.If(empty):  # whether it will be needed is known late
            m.d.sync += spare.eq(self.i.p)
        return m
