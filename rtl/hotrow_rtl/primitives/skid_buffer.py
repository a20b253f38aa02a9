"""A buffer that registers both `valid` and `ready` of a stream."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class SkidBuffer(wiring.Component):
    """A two-entry FIFO: an output register and a spare one, filled when the output stalls.

    Parameters
    ----------
    shape : ShapeCastable
    rigid : bool
        `o` holds its state while its `ready` is low, even without a payload: for a pipeline whose
        stages share one enable.

    Attributes
    ----------
    i : In(stream(shape))
        `ready` is a register.
    o : Out(stream(shape))
    ready_next : Out(1)
        `i.ready` of the next cycle.

    Timing
    ------
    Latency 1 cycle, one payload a cycle.
    """

    latency = 1

    def __init__(self, shape, *, rigid=False):
        self.shape, self.rigid = shape, rigid
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "ready_next": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        spare = Signal(self.shape, reset_less=True)
        spare_empty = Signal(init=1)  # `i.ready`, which enables many registers of the producer
        load = self.o.ready if self.rigid else ~self.o.valid | self.o.ready
        m.d.comb += [
            self.i.ready.eq(spare_empty),
            self.ready_next.eq(load | spare_empty & ~self.i.valid),
        ]
        m.d.sync += spare_empty.eq(self.ready_next)
        with m.If(load):
            m.d.sync += [self.o.valid.eq(~spare_empty | self.i.valid), self.o.p.eq(self.i.p)]
            with m.If(~spare_empty):
                m.d.sync += self.o.p.eq(spare)
        with m.If(spare_empty):  # Timing: loaded in any case, as `o.ready` is late
            m.d.sync += spare.eq(self.i.p)
        return m
