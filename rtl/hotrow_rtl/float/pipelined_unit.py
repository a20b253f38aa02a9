"""PipelinedUnit: what the floating-point units without a stall have in common."""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class PipelinedUnit(wiring.Component):
    """Base class of a unit with a fixed latency that never stalls.

    A subclass sets `layout` and `latency`, and adds its datapath in ``datapath(m)``.

    Attributes
    ----------
    operands : In(stream(layout, always_ready=True))
    results : Out(stream(32, always_ready=True))
        One per operand, in order.

    Timing
    ------
    Latency `latency` cycles, one operation per cycle.
    """

    layout = None
    latency = None

    def __init__(self):
        super().__init__({
            "operands": In(stream.Signature(self.layout, always_ready=True)),
            "results": Out(stream.Signature(32, always_ready=True)),
        })

    def elaborate(self, platform):
        m = Module()
        valid = Signal(self.latency)
        m.d.sync += valid.eq(Cat(self.operands.valid, valid))
        m.d.comb += self.results.valid.eq(valid[-1])
        self.datapath(m)
        return m
