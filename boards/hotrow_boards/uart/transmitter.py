"""From bytes to a serial line."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .layouts import EIGHTHS, PERIOD_BITS

_BITS = 10  # with start and stop bit


class Transmitter(wiring.Component):
    """Send bytes with a start and a stop bit, the lowest bit first.

    Members
    -------
    i : In(stream(8))
    period : In(PERIOD_BITS)
        Of eight bits, in cycles.
    line : Out(1)

    Timing
    ------
    10 / 8 of a period a byte, and a cycle.
    """

    i: In(stream.Signature(8))
    period: In(PERIOD_BITS)
    line: Out(1, init=1)

    def elaborate(self, platform):
        m = Module()
        bits, todo = Signal(_BITS), Signal(range(_BITS + 1))
        left = Signal(PERIOD_BITS + 1)  # eighths of a cycle of this bit
        over = Signal()
        m.d.comb += [
            over.eq(left <= EIGHTHS),
            self.i.ready.eq(todo == 0),
        ]
        with m.If(todo == 0):
            m.d.sync += self.line.eq(1)
            with m.If(self.i.valid):
                m.d.sync += [
                    bits.eq(Cat(Const(0, 1), self.i.p, Const(1, 1))),
                    todo.eq(_BITS),
                    left.eq(self.period),
                ]
        with m.Else():
            m.d.sync += [
                self.line.eq(bits[0]),
                left.eq(Mux(over, left + self.period - EIGHTHS, left - EIGHTHS)),
            ]
            with m.If(over):
                m.d.sync += [bits.eq(bits >> 1), todo.eq(todo - 1)]
        return m
