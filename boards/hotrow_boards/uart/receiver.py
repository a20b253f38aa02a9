"""From a serial line to bytes."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .layouts import EIGHTHS, PERIOD_BITS


class Receiver(wiring.Component):
    """Take bytes of a start bit, eight bits, the lowest first, and a stop bit.

    Members
    -------
    line : In(1)
        Synchronised.
    period : In(PERIOD_BITS)
        Of eight bits, in cycles; at least LEAST_PERIOD.
    o : Out(stream(8))
        A byte that is not taken before the next has come is lost.
    broken : Out(1)
        High for a cycle when there was no stop bit; the byte is dropped.

    Timing
    ------
    A byte is there 1 cycle after the middle of its stop bit.
    """

    line: In(1)
    period: In(PERIOD_BITS)
    o: Out(stream.Signature(8))
    broken: Out(1)

    def elaborate(self, platform):
        m = Module()
        left = Signal(PERIOD_BITS + 1)  # eighths of a cycle until the middle of the next bit
        octet, bits = Signal(8), Signal(range(8))
        middle, rest = Signal(), Signal.like(left)
        m.d.comb += [
            middle.eq(left <= EIGHTHS),
            rest.eq(Mux(middle, left + self.period - EIGHTHS, left - EIGHTHS)),
        ]
        m.d.sync += left.eq(rest)
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [left.eq(self.period >> 1), bits.eq(0)]
                with m.If(~self.line):
                    m.next = "START"
            with m.State("START"):
                with m.If(middle):
                    m.next = "IDLE"
                    with m.If(~self.line):
                        m.next = "BITS"
            with m.State("BITS"):
                with m.If(middle):
                    m.d.sync += [octet.eq(Cat(octet[1:], self.line)), bits.eq(bits + 1)]
                    with m.If(bits == 7):
                        m.next = "STOP"
            with m.State("STOP"):
                with m.If(middle):
                    m.next = "IDLE"
                    with m.If(self.line):
                        m.d.sync += [self.o.valid.eq(1), self.o.p.eq(octet)]
                    with m.Else():
                        m.d.comb += self.broken.eq(1)
                        m.next = "BREAK"
            with m.State("BREAK"):
                with m.If(self.line):
                    m.next = "IDLE"
        return m
