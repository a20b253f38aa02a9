"""InterruptWriter: message-signalled interrupts as posted writes."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .layouts import Fmt, Type, address_fields, dword_beat, request_header, swapped


class InterruptWriter(wiring.Component):
    """Write a message at each rising edge of the interrupt.

    The message is a posted write: on the link it passes no write that was accepted before.

    Source: PCI Local Bus Specification, section 6.8.

    Attributes
    ----------
    interrupt : In(1)
        Edges while a message waits become one message.
    enable : In(1)
        The host has enabled the capability; edges without it are dropped.
    address : In(64), data : In(16), requester : In(16)
    packets : Out(stream(dword_beat()))

    Timing
    ------
    A packet follows the edge by 2 cycles and takes 4 or 5.
    """

    interrupt: In(1)
    enable: In(1)
    address: In(64)
    data: In(16)
    requester: In(16)
    packets: Out(stream.Signature(dword_beat()))

    def elaborate(self, platform):
        m = Module()
        before, pending, busy, number = Signal(), Signal(), Signal(), Signal(3)
        header, header_q, data = Signal(request_header), Signal(request_header), Signal(32)
        long = address_fields(m, header, self.address)
        m.d.comb += [
            header.fmt.eq(Mux(long, Fmt.LONG_DATA, Fmt.SHORT_DATA)),
            header.type.eq(Type.MEMORY),
            header.length.eq(1),
            header.first_strobes.eq(0b1111),
            header.requester.eq(self.requester),
            self.packets.valid.eq(busy),
            self.packets.p.last.eq(number == 3 + header_q.fmt[0]),
            self.packets.p.data.eq(Mux(
                self.packets.p.last, swapped(data),
                header_q.as_value().word_select(number[:2], 32))),
        ]
        m.d.sync += before.eq(self.interrupt)
        with m.If(~busy & pending):
            m.d.sync += [busy.eq(1), pending.eq(0), number.eq(0), header_q.eq(header),
                         data.eq(self.data)]
        with m.Elif(self.packets.ready & busy):
            m.d.sync += [number.eq(number + 1), busy.eq(~self.packets.p.last)]
        with m.If(self.interrupt & ~before & self.enable):
            m.d.sync += pending.eq(1)
        return m
