"""Bridge: AXI4 masters and a register window on a PCI Express link."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..memory.axi import AXI4Lite
from ..primitives.bits import onehot_mux
from ..primitives.skid_buffer import SkidBuffer
from .dwords import DwordPacker, DwordUnpacker
from .layouts import Type, beat, common_header
from .read_requester import ReadRequester
from .target import Target
from .write_requester import WriteRequester


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
    out : Out(stream(beat(width)))

    Timing
    ------
    Latency 1 cycle, a beat a cycle.
    """

    def __init__(self, width, count):
        self.width = width
        super().__init__({
            "packets": In(stream.Signature(beat(width))).array(count),
            "out": Out(stream.Signature(beat(width))),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.skid = skid = SkidBuffer(beat(self.width))
        connect(m, skid=skid.o, link=flipped(self.out))
        # A grant holds until the packet's last beat, then the sources after its owner are the next.
        # Timing: `ready` of a source does not depend on its `valid`.
        begun, owner, grant = Signal(), Signal(len(self.packets)), Signal(len(self.packets))
        valids = Cat(packets.valid for packets in self.packets)
        for number, packets in enumerate(self.packets):
            before = Cat(*(~owner[other:number].any() for other in range(number)), 0,
                         *(owner[number:other].any() for other in range(number + 1, len(valids))))
            m.d.comb += [
                grant[number].eq(Mux(begun, owner[number], ~(valids & before).any())),
                packets.ready.eq(grant[number] & skid.i.ready),
            ]
        select = grant & valids
        m.d.comb += [
            skid.i.valid.eq(select.any()),
            skid.i.p.eq(onehot_mux(select, [packets.p.as_value() for packets in self.packets])),
        ]
        with m.If(skid.i.valid & skid.i.ready):
            m.d.sync += [owner.eq(select), begun.eq(~skid.i.p.last)]
        return m


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
        # A locked one, too: no completion is answered.
        is_completion = header.type[1:] == Type.COMPLETION >> 1
        m.d.comb += [
            completion.eq(Mux(begun, kept, is_completion)),
            self.completions.valid.eq(packets.valid & completion),
            self.completions.p.eq(packets.p),
            self.requests.valid.eq(packets.valid & ~completion),
            self.requests.p.eq(packets.p),
            packets.ready.eq(completion | self.requests.ready),
        ]
        with m.If(packets.valid & packets.ready):
            m.d.sync += [begun.eq(~packets.p.last), kept.eq(completion)]
        return m


class Bridge(wiring.Component):
    """Connect a card to the stream of LitePCIe's PHY.

    Packets leave in the order in which the arbiter accepts them, and a write is answered after its
    last packet was accepted. The completion of a register read or a read of the host's memory that
    follows the answer therefore leaves after the data.

    Parameters
    ----------
    reads : sequence of AXI4Read
    writes : sequence of AXI4Write
        The signature of each master, all of the width of the link: 8 or 16 bytes.
    register_bits : int
        Address bits of the register window.

    Attributes
    ----------
    read_0, ... : In(AXI4Read), write_0, ... : In(AXI4Write)
        See `ReadRequester` and `WriteRequester`.
    registers : Out(AXI4Lite(address_width=register_bits))
    received : In(stream(beat)), sent : Out(stream(beat))
        Packets from the link and to it.
    identity : In(16)
        Bus, device and function number.
    max_read_bytes, max_payload_bytes : In(16)
        Of the device control register: powers of two from 128 on.
    master : In(1)
        Bus master enable. While it is low, no request of the card begins: reads and writes are
        answered with DECERR. A packet that the arbiter has accepted before is completed, and the
        host's reads of registers are answered.
    timeout : In(32)
        Cycles until a read is answered with DECERR, see `TagPool`.

    Timing
    ------
    A packet leaves one cycle after its requester has it; see there.
    """

    def __init__(self, reads, writes, register_bits):
        self.reads, self.writes = list(reads), list(writes)
        widths = {each.bus_bytes for each in (*self.reads, *self.writes)}
        if len(widths) != 1 or not widths <= {8, 16} or not self.reads or not self.writes:
            raise ValueError("the bridge needs masters that read and masters that write, all 8 or "
                             f"all 16 bytes wide, not {len(self.reads)} and {len(self.writes)} of "
                             f"{sorted(widths)} bytes")
        [self.bus_bytes] = widths
        super().__init__({
            **{f"read_{number}": In(each) for number, each in enumerate(self.reads)},
            **{f"write_{number}": In(each) for number, each in enumerate(self.writes)},
            "registers": Out(AXI4Lite(address_width=register_bits)),
            "received": In(stream.Signature(beat(8 * self.bus_bytes))),
            "sent": Out(stream.Signature(beat(8 * self.bus_bytes))),
            "identity": In(16),
            "max_read_bytes": In(16),
            "max_payload_bytes": In(16),
            "master": In(1),
            "timeout": In(32),
        })

    def elaborate(self, platform):
        m = Module()
        width = 8 * self.bus_bytes
        m.submodules.reader = reader = ReadRequester(self.reads)
        m.submodules.writer = writer = WriteRequester(self.writes)
        m.submodules.target = target = Target(len(self.registers.araddr))
        m.submodules.router = router = PacketRouter(width)
        m.submodules.arbiter = arbiter = PacketArbiter(width, 3)
        m.submodules.unpacker = unpacker = DwordUnpacker(width)
        m.submodules.completions = completions = DwordPacker(width)
        for number in range(len(self.reads)):
            connect(m, flipped(getattr(self, f"read_{number}")), getattr(reader, f"bus_{number}"))
        for number in range(len(self.writes)):
            connect(m, flipped(getattr(self, f"write_{number}")), getattr(writer, f"bus_{number}"))
        connect(m, target.bus, flipped(self.registers))

        connect(m, flipped(self.received), router.packets)
        connect(m, router=router.completions, reader=reader.completions)
        connect(m, router=router.requests, unpacker=unpacker.packets)
        connect(m, unpacker=unpacker.dwords, target=target.requests)
        connect(m, target=target.completions, packer=completions.dwords)
        for source, packets in zip((writer.requests, completions.packets, reader.requests),
                                   arbiter.packets, strict=True):
            connect(m, source=source, arbiter=packets)
        connect(m, arbiter.out, flipped(self.sent))

        m.d.comb += [
            *(unit.eq(self.identity) for unit in (
                reader.requester, writer.requester, target.completer)),
            *(unit.master.eq(self.master) for unit in (reader, writer)),
            reader.max_read_bytes.eq(self.max_read_bytes),
            reader.timeout.eq(self.timeout),
            writer.max_payload_bytes.eq(self.max_payload_bytes),
        ]
        return m
