"""PacketRouter: completions to the requester, all other packets to the target."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .layouts import Type, beat, common_header


class PacketRouter(wiring.Component):
    """Route whole packets by their type.

    Parameters
    ----------
    width : int

    Attributes
    ----------
    packets : In(stream(beat(width)))
    completions : Out(stream(beat(width)))
        Always ready.
    requests : Out(stream(beat(width)))

    Timing
    ------
    Combinational.
    """

    def __init__(self, width):
        self.width = width
        super().__init__({
            "packets": In(stream.Signature(beat(width))),
            "completions": Out(stream.Signature(beat(width), always_ready=True)),
            "requests": Out(stream.Signature(beat(width))),
        })

    def elaborate(self, platform):
        m = Module()
        packets = self.packets
        begun, kept, completion = Signal(), Signal(), Signal()
        header = common_header(packets.p.data[:32])
        m.d.comb += [
            completion.eq(Mux(begun, kept, header.type == Type.COMPLETION)),
            self.completions.valid.eq(packets.valid & completion),
            self.completions.p.eq(packets.p),
            self.requests.valid.eq(packets.valid & ~completion),
            self.requests.p.eq(packets.p),
            packets.ready.eq(completion | self.requests.ready),
        ]
        with m.If(packets.valid & packets.ready):
            m.d.sync += [begun.eq(~packets.p.last), kept.eq(completion)]
        return m
