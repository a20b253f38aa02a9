"""ReadRequester: AXI4 reads of several masters over PCI Express."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .completion_buffer import CompletionBuffer
from .completion_receiver import CompletionReceiver
from .layouts import beat
from .read_issuer import ReadIssuer
from .read_return import ReadReturn
from .read_splitter import ReadSplitter
from .tag_pool import TagPool


class ReadRequester(wiring.Component):
    """Request data from the host, up to `TAGS` requests in flight, and return it in order.

    Parameters
    ----------
    buses : sequence of AXI4Read
        Of one width, 8 or 16 bytes. Bursts start at a bus word and cross no page.

    Attributes
    ----------
    bus_0, ... : In(AXI4Read)
        The data of all masters comes in the order of their requests.
    requests : Out(stream(beat))
    completions : In(stream(beat))
        Always ready.
    requester, master, max_read_bytes, timeout : In
        See `ReadIssuer`, `ReadSplitter`, `TagPool`.

    Timing
    ------
    A request is sent 2 cycles after its address; its first word is valid 4 cycles after the last
    beat of its last completion.
    """

    def __init__(self, buses):
        self.buses = list(buses)
        self.width = 8 * self.buses[0].bus_bytes
        super().__init__({
            **{f"bus_{number}": In(each) for number, each in enumerate(self.buses)},
            "requests": Out(stream.Signature(beat(self.width))),
            "completions": In(stream.Signature(beat(self.width), always_ready=True)),
            "requester": In(16),
            "master": In(1),
            "max_read_bytes": In(16),
            "timeout": In(32),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.splitter = splitter = ReadSplitter(self.buses)
        m.submodules.pool = pool = TagPool()
        m.submodules.issuer = issuer = ReadIssuer(self.buses)
        m.submodules.receiver = receiver = CompletionReceiver(self.width)
        m.submodules.buffer = buffer = CompletionBuffer(self.width // 8)
        m.submodules.data = returns = ReadReturn(self.buses)
        for number in range(len(self.buses)):
            port, addresses, words = (
                getattr(unit, f"bus_{number}") for unit in (self, splitter, returns))
            for name in port.signature.members:
                value = getattr(port, name)
                if name.startswith("ar"):
                    mine = getattr(addresses, name)
                    m.d.comb += value.eq(mine) if name == "arready" else mine.eq(value)
                else:
                    mine = getattr(words, name)
                    m.d.comb += mine.eq(value) if name == "rready" else value.eq(mine)
        connect(m, splitter=splitter.chunks, issuer=issuer.chunks)
        connect(m, pool=pool.tags, issuer=issuer.tags)
        connect(m, issuer=issuer.order, returns=returns.order)
        connect(m, issuer=issuer.refused, buffer=buffer.refused)
        connect(m, issuer.packets, flipped(self.requests))
        connect(m, flipped(self.completions), receiver.packets)
        m.d.comb += [
            splitter.max_read_bytes.eq(self.max_read_bytes),
            issuer.requester.eq(self.requester),
            issuer.master.eq(self.master),
            buffer.completions.eq(receiver.completions),
            buffer.issued.eq(issuer.issued),
            buffer.in_flight.eq(pool.in_flight),
            buffer.read_enable.eq(returns.read_enable),
            buffer.read_address.eq(returns.read_address),
            returns.read_data.eq(buffer.read_data),
            returns.causes.eq(buffer.causes),
            returns.done.eq(pool.done),
            returns.late.eq(pool.late),
            pool.completed.eq(buffer.completed),
            pool.completed_tag.eq(buffer.completed_tag),
            pool.released.eq(returns.released),
            pool.released_tag.eq(returns.released_tag),
            pool.timeout.eq(self.timeout),
        ]
        return m
