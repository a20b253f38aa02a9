"""SLIP framing of a byte stream.

Source: RFC 1055, with an END also before each frame.
"""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.contract.link_frames import (
    SLIP_END,
    SLIP_ESCAPE,
    SLIP_ESCAPED_END,
    SLIP_ESCAPED_ESCAPE,
)

from .layouts import frame_byte


class SlipDecoder(wiring.Component):
    """Decode bytes to frames; empty frames are dropped.

    Attributes
    ----------
    i : In(stream(8))
    o : Out(stream(frame_byte))

    Timing
    ------
    `o` has a byte 1 cycle after `i` accepts the next byte of the frame, or the END.
    """

    i: In(stream.Signature(8))
    o: Out(stream.Signature(frame_byte))

    def elaborate(self, platform):
        m = Module()
        byte_q, byte_valid, escaped = Signal(8), Signal(), Signal()
        unescaped = Signal(8)
        with m.Switch(self.i.p):
            with m.Case(SLIP_ESCAPED_END):
                m.d.comb += unescaped.eq(SLIP_END)
            with m.Case(SLIP_ESCAPED_ESCAPE):
                m.d.comb += unescaped.eq(SLIP_ESCAPE)
            with m.Default():
                m.d.comb += unescaped.eq(self.i.p)
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.i.valid & self.i.ready):
            with m.If(self.i.p == SLIP_END):
                m.d.sync += [
                    self.o.valid.eq(byte_valid),
                    self.o.p.data.eq(byte_q),
                    self.o.p.last.eq(1),
                    byte_valid.eq(0),
                    escaped.eq(0),
                ]
            with m.Elif((self.i.p == SLIP_ESCAPE) & ~escaped):
                m.d.sync += escaped.eq(1)
            with m.Else():
                m.d.sync += [
                    self.o.valid.eq(byte_valid),
                    self.o.p.data.eq(byte_q),
                    self.o.p.last.eq(0),
                    byte_q.eq(Mux(escaped, unescaped, self.i.p)),
                    byte_valid.eq(1),
                    escaped.eq(0),
                ]
        return m


class SlipEncoder(wiring.Component):
    """Encode frames as bytes.

    Attributes
    ----------
    i : In(stream(frame_byte))
    o : Out(stream(8))

    Timing
    ------
    Combinational; a byte a cycle, an extra cycle for each escaped byte and two for each frame.
    """

    i: In(stream.Signature(frame_byte))
    o: Out(stream.Signature(8))

    def elaborate(self, platform):
        m = Module()
        byte, last = self.i.p.data, self.i.p.last
        is_end, is_escape = byte == SLIP_END, byte == SLIP_ESCAPE
        with m.FSM():
            with m.State("BEGIN"):
                m.d.comb += [self.o.valid.eq(self.i.valid), self.o.p.eq(SLIP_END)]
                with m.If(self.i.valid & self.o.ready):
                    m.next = "BYTE"
            with m.State("BYTE"):
                escapes = is_end | is_escape
                m.d.comb += [
                    self.o.valid.eq(self.i.valid),
                    self.o.p.eq(Mux(escapes, SLIP_ESCAPE, byte)),
                    self.i.ready.eq(self.o.ready & ~escapes),
                ]
                with m.If(self.i.valid & self.o.ready):
                    with m.If(escapes):
                        m.next = "ESCAPED"
                    with m.Elif(last):
                        m.next = "END"
            with m.State("ESCAPED"):
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.p.eq(Mux(is_end, SLIP_ESCAPED_END, SLIP_ESCAPED_ESCAPE)),
                    self.i.ready.eq(self.o.ready),
                ]
                with m.If(self.o.ready):
                    m.next = "BYTE"
                    with m.If(last):
                        m.next = "END"
            with m.State("END"):
                m.d.comb += [self.o.valid.eq(1), self.o.p.eq(SLIP_END)]
                with m.If(self.o.ready):
                    m.next = "BEGIN"
        return m
