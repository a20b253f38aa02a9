"""WriteRequester: AXI4 writes of several masters over PCI Express."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .layouts import beat
from .write_collector import WriteCollector
from .write_sender import WriteSender


class WriteRequester(wiring.Component):
    """Write to the host with posted requests.

    Parameters
    ----------
    buses : sequence of AXI4Write
        Of one width, 8 or 16 bytes. Bursts start at a bus word and cross no page.

    Attributes
    ----------
    bus_0, ... : In(AXI4Write)
        An answer comes once the burst's last packet has been accepted. It is OKAY, or DECERR if one
        was refused.
    requests : Out(stream(beat))
    requester, master, max_payload_bytes : In
        See `WriteSender`, `WriteCollector`.

    Timing
    ------
    A packet starts 3 cycles after its last word, and takes a cycle per beat.
    """

    def __init__(self, buses):
        self.buses = list(buses)
        super().__init__({
            **{f"bus_{number}": In(each) for number, each in enumerate(self.buses)},
            "requests": Out(stream.Signature(beat(8 * self.buses[0].bus_bytes))),
            "requester": In(16),
            "master": In(1),
            "max_payload_bytes": In(16),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.collector = collector = WriteCollector(self.buses)
        m.submodules.sender = sender = WriteSender(self.buses)
        for number in range(len(self.buses)):
            port, words, answers = (
                getattr(unit, f"bus_{number}") for unit in (self, collector, sender))
            for name in port.signature.members:
                value = getattr(port, name)
                mine = getattr(answers if name.startswith("b") else words, name)
                given = name in ("awready", "wready", "bvalid", "bid", "bresp")
                m.d.comb += value.eq(mine) if given else mine.eq(value)
        connect(m, collector=collector.segments, sender=sender.segments)
        connect(m, collector=collector.words, sender=sender.words)
        connect(m, sender.packets, flipped(self.requests))
        m.d.comb += [
            collector.max_payload_bytes.eq(self.max_payload_bytes),
            sender.requester.eq(self.requester),
            sender.master.eq(self.master),
        ]
        return m
