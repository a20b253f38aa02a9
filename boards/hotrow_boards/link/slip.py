"""Frames on a line of bytes.

Source: RFC 1055, with an END before each frame as well.
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
    """From bytes to frames; empty ones are left out.

    Members
    -------
    i : In(stream(8))
    o : Out(stream(frame_byte))

    Timing
    ------
    A byte of a frame leaves 1 cycle after the next one, or the END, has come.
    """

    i: In(stream.Signature(8))
    o: Out(stream.Signature(frame_byte))

    def elaborate(self, platform):
        m = Module()
        held, holds, escaped = Signal(8), Signal(), Signal()
        meant = Signal(8)
        with m.Switch(self.i.p):
            with m.Case(SLIP_ESCAPED_END):
                m.d.comb += meant.eq(SLIP_END)
            with m.Case(SLIP_ESCAPED_ESCAPE):
                m.d.comb += meant.eq(SLIP_ESCAPE)
            with m.Default():
                m.d.comb += meant.eq(self.i.p)
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.i.valid & self.i.ready):
            with m.If(self.i.p == SLIP_END):
                m.d.sync += [
                    self.o.valid.eq(holds),
                    self.o.p.data.eq(held),
                    self.o.p.last.eq(1),
                    holds.eq(0),
                    escaped.eq(0),
                ]
            with m.Elif((self.i.p == SLIP_ESCAPE) & ~escaped):
                m.d.sync += escaped.eq(1)
            with m.Else():
                m.d.sync += [
                    self.o.valid.eq(holds),
                    self.o.p.data.eq(held),
                    self.o.p.last.eq(0),
                    held.eq(Mux(escaped, meant, self.i.p)),
                    holds.eq(1),
                    escaped.eq(0),
                ]
        return m


class SlipEncoder(wiring.Component):
    """From frames to bytes.

    Members
    -------
    i : In(stream(frame_byte))
    o : Out(stream(8))

    Timing
    ------
    Combinational; a byte a cycle, two bytes of one that is escaped, two more of each frame.
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
