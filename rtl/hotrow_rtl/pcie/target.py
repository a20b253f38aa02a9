"""Target: the host's accesses to a BAR as AXI4-Lite accesses."""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import log2
from ..memory.axi import DECERR, OKAY, AXI4Lite
from .layouts import (
    ANSWERED,
    DWORD,
    CompletionStatus,
    Fmt,
    Type,
    completion_header,
    dword_beat,
    request_header,
    swapped,
)

LONGEST_READ = 16  # double words


class Target(wiring.Component):
    """Serve memory requests one at a time, each double word as an access of AXI4-Lite.

    A read of more than `LONGEST_READ` double words is answered with Completer Abort; a request that
    is no access to memory and expects an answer, with Unsupported Request. Messages, poisoned
    writes and packets of an unknown kind are dropped. A double word without byte enables is not
    accessed.

    Parameters
    ----------
    address_width : int
        Address bits of the registers. The window repeats in the BAR.

    Attributes
    ----------
    requests : In(stream(dword_beat()))
        Packets other than completions.
    completions : Out(stream(dword_beat()))
        Built after the registers have answered, so that what it follows on the link is what the
        registers had seen.
    completer : In(16)
        Bus, device and function number.
    bus : Out(AXI4Lite(address_width=address_width))

    Timing
    ------
    A cycle per double word of a request and of a completion, and 2 cycles more; each access takes a
    cycle and the latency of the registers.
    """

    def __init__(self, address_width):
        super().__init__({
            "requests": In(stream.Signature(dword_beat())),
            "completions": Out(stream.Signature(dword_beat())),
            "completer": In(16),
            "bus": Out(AXI4Lite(address_width=address_width)),
        })

    def elaborate(self, platform):
        m = Module()
        given, out, bus = self.requests, self.completions, self.bus
        dwords = [Signal(32, name=f"header_{number}") for number in range(4)]
        header = request_header(Cat(dwords))
        ended, number, memory, locked = Signal(), Signal(11), Signal(), Signal()
        address, strobes, status = Signal(32), Signal(DWORD), Signal(3)
        answers = Array(Signal(32, name=f"answer_{idx}") for idx in range(LONGEST_READ))
        length = Mux(header.length == 0, 1024, header.length)
        first, final = number == 0, number == length - 1
        count = Signal(range(LONGEST_READ + 3))  # double words of the completion
        m.d.comb += [
            memory.eq((header.type == Type.MEMORY) & ~header.fmt[2]),
            locked.eq(header.type == Type.LOCKED_MEMORY),
            address.eq(Mux(header.fmt[0], header.address[1], header.address[0])),
            strobes.eq(Mux(first, header.first_strobes, Mux(final, header.last_strobes, 0b1111))),
            bus.araddr.eq(address + (number << log2(DWORD))),
            bus.awaddr.eq(bus.araddr),
            bus.arprot.eq(0),
            bus.awprot.eq(0),
        ]

        # The completion.
        reply = Signal(completion_header)
        success = status == CompletionStatus.SUCCESS
        skipped, cut = self._unread(m, header)
        m.d.comb += [
            reply.fmt.eq(Mux(success, Fmt.SHORT_DATA, Fmt.SHORT)),
            reply.type.eq(Mux(locked, Type.LOCKED_COMPLETION, Type.COMPLETION)),
            reply.tc.eq(header.tc),
            reply.attr.eq(header.attr),
            reply.length.eq(Mux(success, header.length, 0)),
            reply.status.eq(status),
            reply.completer.eq(self.completer),
            reply.byte_count.eq(Mux(memory | locked, (length << log2(DWORD)) - skipped - cut,
                                    DWORD)),
            reply.requester.eq(header.requester),
            reply.tag.eq(header.tag),
            reply.lower_address.eq(Mux(memory | locked, address[2:7] << log2(DWORD) | skipped, 0)),
            out.p.data.eq(Mux(count < 3, reply.as_value().word_select(count[:2], 32),
                              swapped(answers[(count - 3)[:log2(LONGEST_READ)]]))),
            out.p.last.eq(count == Mux(success, header.length + 2, 2)),
        ]

        def advance(state):
            m.d.sync += number.eq(number + 1)
            m.next = state

        for ready, valid in ((bus.awready, bus.awvalid), (bus.wready, bus.wvalid)):
            with m.If(ready):
                m.d.sync += valid.eq(0)
        with m.FSM():
            with m.State("HEADER"):
                m.d.comb += given.ready.eq(1)
                m.d.sync += [count.eq(0), status.eq(CompletionStatus.SUCCESS),
                             ended.eq(given.p.last)]
                with m.If(given.valid):
                    m.d.sync += number.eq(number + 1)
                    for idx, dword in enumerate(dwords):
                        with m.If(number == idx):
                            m.d.sync += dword.eq(given.p.data)
                    with m.If((number == 2 + header.fmt[0]) & (number >= 2)):
                        m.d.sync += number.eq(0)
                        m.next = "DISPATCH"
                    with m.Elif(given.p.last):  # shorter than a header
                        m.d.sync += number.eq(0)
            with m.State("DISPATCH"):
                m.next = "DROP"
                with m.If(memory & header.fmt[1] & ~header.poisoned & ~ended):
                    m.next = "WRITE"
                with m.Elif(memory & ~header.fmt[1]):
                    m.next = "READ"
                    with m.If(length > LONGEST_READ):
                        m.d.sync += status.eq(CompletionStatus.ABORTED)
                        m.next = "REPLY"
                with m.Elif(Cat(header.type, header.fmt).matches(*ANSWERED)):
                    m.d.sync += status.eq(CompletionStatus.UNSUPPORTED)
                    m.next = "REPLY"
            with m.State("WRITE"):
                m.d.comb += given.ready.eq(1)
                m.d.sync += [bus.wdata.eq(swapped(given.p.data)), bus.wstrb.eq(strobes)]
                with m.If(given.valid):
                    m.d.sync += ended.eq(given.p.last)
                    with m.If(strobes.any()):
                        m.d.sync += [bus.awvalid.eq(1), bus.wvalid.eq(1)]
                        m.next = "WRITTEN"
                    with m.Else():
                        advance("WRITE")
                        with m.If(given.p.last | final):
                            m.next = "DROP"
            with m.State("WRITTEN"):
                m.d.comb += bus.bready.eq(1)
                with m.If(bus.bvalid):
                    advance("WRITE")
                    with m.If(ended | final):
                        m.next = "DROP"
            with m.State("READ"):
                m.d.comb += bus.arvalid.eq(strobes.any())
                with m.If(bus.arready & bus.arvalid):
                    m.next = "ANSWER"
                with m.Elif(~strobes.any()):
                    m.d.sync += answers[number[:log2(LONGEST_READ)]].eq(0)
                    advance("READ")
                    with m.If(final):
                        m.next = "REPLY"
            with m.State("ANSWER"):
                m.d.comb += bus.rready.eq(1)
                m.d.sync += answers[number[:log2(LONGEST_READ)]].eq(bus.rdata)
                with m.If(bus.rvalid):
                    with m.If(bus.rresp != OKAY):
                        m.d.sync += status.eq(Mux(bus.rresp == DECERR,
                                                  CompletionStatus.UNSUPPORTED,
                                                  CompletionStatus.ABORTED))
                    advance("READ")
                    with m.If(final):
                        m.next = "REPLY"
            with m.State("REPLY"):
                m.d.comb += out.valid.eq(1)
                with m.If(out.ready):
                    m.d.sync += count.eq(count + 1)
                    with m.If(out.p.last):
                        m.next = "DROP"
            with m.State("DROP"):  # the rest of the packet: a payload not written, or a digest
                m.d.comb += given.ready.eq(~ended)
                m.d.sync += number.eq(0)
                with m.If(ended | given.valid & given.p.last):
                    m.next = "HEADER"
        return m

    @staticmethod
    def _unread(m, header):
        """Bytes of a read before the first byte enabled, and after the last one."""
        skipped, cut = Signal(2), Signal(2)
        single = header.length == 1
        first, last = header.first_strobes, Mux(single, header.first_strobes, header.last_strobes)
        for strobes, value, order in ((first, skipped, range(3, -1, -1)),
                                      (last, cut, range(4))):
            for place in order:
                with m.If(strobes[place]):
                    m.d.comb += value.eq(place if value is skipped else 3 - place)
        with m.If(single & ~first.any()):  # no byte: the answer has one nevertheless
            m.d.comb += [skipped.eq(0), cut.eq(3)]
        return skipped, cut
