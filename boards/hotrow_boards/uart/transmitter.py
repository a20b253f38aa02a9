"""Send bytes over a serial line."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .layouts import EIGHTHS, PERIOD_BITS

_BITS = 10  # with start and stop bit


class Transmitter(wiring.Component):
    """Send bytes with a start and a stop bit, the lowest bit first.

    Attributes
    ----------
    i : In(stream(8))
    period : In(PERIOD_BITS)
        Cycles of eight bits.
    line : Out(1)

    Timing
    ------
    A byte takes 10 / 8 of a period, plus a cycle.
    """

    i: In(stream.Signature(8))
    period: In(PERIOD_BITS)
    line: Out(1, init=1)

    def elaborate(self, platform):
        m = Module()
        bits, bits_left = Signal(_BITS), Signal(range(_BITS + 1))
        eighths_left = Signal(PERIOD_BITS + 1)  # of the bit on the line
        bit_done = Signal()
        m.d.comb += [
            bit_done.eq(eighths_left <= EIGHTHS),
            self.i.ready.eq(bits_left == 0),
        ]
        with m.If(bits_left == 0):
            m.d.sync += self.line.eq(1)
            with m.If(self.i.valid):
                m.d.sync += [
                    bits.eq(Cat(Const(0, 1), self.i.p, Const(1, 1))),
                    bits_left.eq(_BITS),
                    eighths_left.eq(self.period),
                ]
        with m.Else():
            m.d.sync += [
                self.line.eq(bits[0]),
                eighths_left.eq(Mux(bit_done, eighths_left + self.period - EIGHTHS,
                                    eighths_left - EIGHTHS)),
            ]
            with m.If(bit_done):
                m.d.sync += [bits.eq(bits >> 1), bits_left.eq(bits_left - 1)]
        return m
