"""PacketArbiter: one stream of whole packets from several."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..primitives.bits import onehot_mux
from ..primitives.round_robin_arbiter import RoundRobinArbiter
from ..primitives.skid_buffer import SkidBuffer
from .layouts import beat


class PacketArbiter(wiring.Component):
    """Send packets in the order in which their first beats are accepted, round robin.

    Parameters
    ----------
    width : int
    count : int
        Number of sources.

    Attributes
    ----------
    packets : In(stream(beat(width))).array(count)
    credits : In(count)
        The link has credits for a packet of this source. A packet that has begun is completed.
    out : Out(stream(beat(width)))

    Timing
    ------
    Latency 1 cycle, a beat a cycle.
    """

    def __init__(self, width, count):
        self.width = width
        super().__init__({
            "packets": In(stream.Signature(beat(width))).array(count),
            "credits": In(count),
            "out": Out(stream.Signature(beat(width))),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.arbiter = arbiter = RoundRobinArbiter(len(self.packets))
        m.submodules.skid = skid = SkidBuffer(beat(self.width))
        connect(m, skid=skid.o, link=flipped(self.out))
        # A grant holds until the packet's last beat.
        begun, owner, grant = Signal(), Signal(len(self.packets)), Signal(len(self.packets))
        for number, packets in enumerate(self.packets):
            m.d.comb += [
                arbiter.requests[number].eq(packets.valid & self.credits[number]),
                packets.ready.eq(grant[number] & skid.i.ready),
            ]
        m.d.comb += [
            grant.eq(arbiter.grant),
            skid.i.valid.eq(onehot_mux(grant, [packets.valid for packets in self.packets])),
            skid.i.p.eq(onehot_mux(grant, [packets.p.as_value() for packets in self.packets])),
            arbiter.accept.eq(~begun & skid.i.ready),
        ]
        with m.If(begun):
            m.d.comb += grant.eq(owner)
        with m.If(skid.i.valid & skid.i.ready):
            m.d.sync += [owner.eq(grant), begun.eq(~skid.i.p.last)]
        return m
