"""Conversion of integers to fp32."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .formats import FP32


class IntegerToFloat(wiring.Component):
    """Convert an unsigned 24-bit integer to fp32, exactly.

    Attributes
    ----------
    operands : In(stream(24))
    results : Out(stream(32))

    Timing
    ------
    One operand n at a time: floor(log2(n)) + 1 cycles to its result, 1 for zero. `operands` is
    ready in the cycle after the result's handshake.
    """

    def __init__(self):
        super().__init__({
            "operands": In(stream.Signature(FP32.fraction_bits + 1)),
            "results": Out(stream.Signature(32)),
        })

    def elaborate(self, platform):
        m = Module()
        remaining, zero = Signal(FP32.fraction_bits + 1), Signal()  # bits not yet in `fraction`
        fraction, exponent = Signal(FP32.fraction_bits), Signal(FP32.exponent_bits)
        busy = Signal()
        m.d.comb += [
            self.operands.ready.eq(~busy),
            self.results.valid.eq(busy & (remaining[1:] == 0)),
            self.results.p.eq(Mux(zero, 0, Cat(fraction, exponent))),
        ]
        with m.If(self.operands.ready):
            m.d.sync += [
                remaining.eq(self.operands.p),
                zero.eq(self.operands.p == 0),
                fraction.eq(0),
                exponent.eq(FP32.bias),
                busy.eq(self.operands.valid),
            ]
        with m.Elif(self.results.valid), m.If(self.results.ready):
            m.d.sync += busy.eq(0)
        with m.Else():
            m.d.sync += [
                remaining.eq(remaining >> 1),
                fraction.eq(Cat(fraction[1:], remaining[0])),
                exponent.eq(exponent + 1),
            ]
        return m
