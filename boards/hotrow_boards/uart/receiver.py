"""Receive bytes from a serial line."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .layouts import EIGHTHS, PERIOD_BITS


class Receiver(wiring.Component):
    """Receive bytes: a start bit, eight bits with the lowest first, a stop bit.

    Attributes
    ----------
    line : In(1)
        Received level, synchronised.
    period : In(PERIOD_BITS)
        Cycles of eight bits, at least MIN_PERIOD.
    o : Out(stream(8))
        A byte that is not accepted before the next one arrives is lost.
    framing_error : Out(1)
        High for a cycle when a stop bit is missing; the byte is dropped.

    Timing
    ------
    `o` is valid 1 cycle after the middle of the stop bit.
    """

    line: In(1)
    period: In(PERIOD_BITS)
    o: Out(stream.Signature(8))
    framing_error: Out(1)

    def elaborate(self, platform):
        m = Module()
        eighths_left = Signal(PERIOD_BITS + 1)  # until the middle of the next bit
        octet, bit_idx = Signal(8), Signal(range(8))
        sample, next_left = Signal(), Signal.like(eighths_left)
        m.d.comb += [
            sample.eq(eighths_left <= EIGHTHS),
            next_left.eq(Mux(sample, eighths_left + self.period - EIGHTHS,
                             eighths_left - EIGHTHS)),
        ]
        m.d.sync += eighths_left.eq(next_left)
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [eighths_left.eq(self.period >> 1), bit_idx.eq(0)]
                with m.If(~self.line):
                    m.next = "START"
            with m.State("START"), m.If(sample):
                m.next = "IDLE"
                with m.If(~self.line):
                    m.next = "BITS"
            with m.State("BITS"), m.If(sample):
                m.d.sync += [octet.eq(Cat(octet[1:], self.line)), bit_idx.eq(bit_idx + 1)]
                with m.If(bit_idx == 7):
                    m.next = "STOP"
            with m.State("STOP"), m.If(sample):
                m.next = "IDLE"
                with m.If(self.line):
                    m.d.sync += [self.o.valid.eq(1), self.o.p.eq(octet)]
                with m.Else():
                    m.d.comb += self.framing_error.eq(1)
                    m.next = "BREAK"
            with m.State("BREAK"), m.If(self.line):
                m.next = "IDLE"
        return m
