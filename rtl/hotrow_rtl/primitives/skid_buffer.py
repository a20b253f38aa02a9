"""SkidBuffer: registers that end a chain of `ready` signals."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class SkidBuffer(wiring.Component):
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
    free : Out(1)
        The `ready` of `i` in the next cycle.

    Timing
    ------
    Latency 1 cycle, one payload a cycle.
    """

    latency = 1

    def __init__(self, width, *, rigid=False):
        self.rigid = rigid
        super().__init__({
            "i": In(stream.Signature(width)), "o": Out(stream.Signature(width)), "free": Out(1)})

    def elaborate(self, platform):
        m = Module()
        # That it is empty, not that it is full, as `ready` moves the many registers before it.
        spare, empty = Signal.like(self.o.p, reset_less=True), Signal(init=1)
        moves = self.o.ready if self.rigid else ~self.o.valid | self.o.ready
        m.d.comb += [self.i.ready.eq(empty), self.free.eq(moves | empty & ~self.i.valid)]
        m.d.sync += empty.eq(self.free)
        with m.If(moves):
            m.d.sync += [self.o.valid.eq(~empty | self.i.valid), self.o.p.eq(self.i.p)]
            with m.If(~empty):
                m.d.sync += self.o.p.eq(spare)
        with m.If(empty):  # whether it will be needed is known late
            m.d.sync += spare.eq(self.i.p)
        return m
