"""ReadIssuer: read requests as packets."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import log2
from .layouts import (
    BOUNDARY,
    DWORD,
    HEADER_DWORDS,
    LARGEST,
    TAG_BITS,
    Fmt,
    Type,
    address_fields,
    beat,
    request_header,
)
from .read_splitter import read_chunk

LOWER_BITS = log2(2 * BOUNDARY)  # of an address, in the header of a completion


def issued_read(bus_bytes) -> data.StructLayout:
    """A request: its tag, its bus words minus one, and the lower bits of its address."""
    return data.StructLayout({"valid": 1, "tag": TAG_BITS, "lower": LOWER_BITS,
                              "len_minus_1": range(LARGEST // bus_bytes)})


def tagged_chunk(buses) -> data.StructLayout:
    """A chunk and the tag of its request."""
    return data.StructLayout({"tag": TAG_BITS, "chunk": read_chunk(buses)})


class ReadIssuer(wiring.Component):
    """Join each chunk with a tag, and send its request.

    All bytes are requested: a chunk has at least two double words. Without `master` a request that
    has not begun is refused.

    Parameters
    ----------
    buses : sequence of AXI4Read

    Attributes
    ----------
    chunks : In(stream(read_chunk(buses)))
    tags : In(stream(TAG_BITS))
    requester : In(16)
        Bus, device and function number.
    master : In(1)
        The card may send requests.
    packets : Out(stream(beat))
    refused : Out(stream(TAG_BITS))
        Tags whose requests are not sent.
    order : Out(stream(tagged_chunk(buses)))
        Fires with `issued`; its consumer has space for all tags.
    issued : Out(issued_read)

    Timing
    ------
    Latency 1 cycle; a request takes a cycle on 128 bits, two on 64, and one cycle more. With
    `master` a packet holds until `ready`.
    """

    def __init__(self, buses):
        self.buses = list(buses)
        self.bus_bytes = self.buses[0].bus_bytes
        super().__init__({
            "chunks": In(stream.Signature(read_chunk(self.buses))),
            "tags": In(stream.Signature(TAG_BITS)),
            "requester": In(16),
            "master": In(1),
            "refused": Out(stream.Signature(TAG_BITS)),
            "packets": Out(stream.Signature(beat(8 * self.bus_bytes))),
            "order": Out(stream.Signature(tagged_chunk(self.buses))),
            "issued": Out(issued_read(self.bus_bytes)),
        })

    def elaborate(self, platform):
        m = Module()
        chunk, out, bus_bytes = self.chunks.p, self.packets, self.bus_bytes
        waiting, second, accept = Signal(), Signal(), Signal()
        header, header_q = Signal(request_header), Signal(request_header)
        long = address_fields(m, header, chunk.address)
        m.d.comb += [
            accept.eq(self.chunks.valid & self.tags.valid & self.order.ready & ~waiting),
            self.chunks.ready.eq(self.tags.valid & self.order.ready & ~waiting),
            self.tags.ready.eq(self.chunks.valid & self.order.ready & ~waiting),
            self.order.valid.eq(self.chunks.valid & self.tags.valid & ~waiting),
            self.order.p.tag.eq(self.tags.p),
            self.order.p.chunk.eq(chunk),
            self.issued.valid.eq(accept),
            self.issued.tag.eq(self.tags.p),
            self.issued.lower.eq(chunk.address),
            self.issued.len_minus_1.eq(chunk.len_minus_1),
            header.fmt.eq(Mux(long, Fmt.LONG, Fmt.SHORT)),
            header.type.eq(Type.MEMORY),
            header.length.eq((chunk.len_minus_1 + 1) << log2(bus_bytes // DWORD)),
            header.first_strobes.eq(0b1111),
            header.last_strobes.eq(0b1111),
            header.tag.eq(self.tags.p),
            header.requester.eq(self.requester),
        ]
        with m.If(accept):
            m.d.sync += [waiting.eq(1), header_q.eq(header)]

        beats = HEADER_DWORDS * DWORD // bus_bytes
        dwords_last = header_q.fmt[0]  # the fourth double word is there
        m.d.comb += [
            out.valid.eq(waiting & (second | self.master)),
            self.refused.valid.eq(waiting & ~second & ~self.master),
            self.refused.p.eq(header_q.tag),
            out.p.data.eq(header_q.as_value().word_select(second, 8 * bus_bytes)),
            out.p.last.eq(second if beats == 2 else 1),
            out.p.keep.eq((1 << bus_bytes // DWORD) - 1),
        ]
        with m.If(out.p.last & ~dwords_last):
            m.d.comb += out.p.keep.eq((1 << bus_bytes // DWORD - 1) - 1)
        with m.If(out.valid & out.ready):
            m.d.sync += [second.eq(~out.p.last), waiting.eq(~out.p.last)]
        with m.If(self.refused.valid & self.refused.ready):
            m.d.sync += waiting.eq(0)
        return m
