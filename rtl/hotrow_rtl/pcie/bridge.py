"""Bridge: AXI4 masters and a register window on a PCI Express link."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..memory.axi import AXI4Lite
from ..primitives.bits import onehot_mux
from ..primitives.round_robin_arbiter import RoundRobinArbiter
from ..primitives.skid_buffer import SkidBuffer
from .dwords import DwordPacker, DwordUnpacker
from .layouts import (
    Error,
    Fmt,
    Type,
    address_fields,
    beat,
    common_header,
    dword_beat,
    request_header,
    swapped,
)
from .read_requester import ReadRequester
from .target import Target
from .write_requester import WriteRequester

SOURCES = ("writes", "interrupts", "completions", "reads")  # of packets, in the order of `credits`


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
    last packet was accepted. An interrupt, the completion of a register read or a read of the
    host's memory that follows the answer therefore leaves after the data.

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
    credits : In(4)
        The link has credits for a packet of each of `SOURCES`. LitePCIe's PHY does not expose its
        counts and stalls `sent` instead: tie them high there.
    timeout : In(32)
        Cycles until a read is answered with DECERR, see `TagPool`.
    interrupt : In(1), msi_enable : In(1), msi_address : In(64), msi_data : In(16)
        See `InterruptWriter`.
    restart : In(1)
        The card restarts: what the masters have in flight is dropped. The link goes on.
    error : Out(Error)
        The first failed read since reset, or since `clear_error`: `valid` then stays high.
    clear_error : In(1)

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
            "credits": In(len(SOURCES)),
            "timeout": In(32),
            "interrupt": In(1),
            "msi_enable": In(1),
            "msi_address": In(64),
            "msi_data": In(16),
            "restart": In(1),
            "error": Out(Error),
            "clear_error": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        width = 8 * self.bus_bytes
        m.submodules.reader = reader = ReadRequester(self.reads)
        m.submodules.writer = writer = WriteRequester(self.writes)
        m.submodules.target = target = Target(len(self.registers.araddr))
        m.submodules.interrupts = interrupts = InterruptWriter()
        m.submodules.router = router = PacketRouter(width)
        m.submodules.arbiter = arbiter = PacketArbiter(width, len(SOURCES))
        m.submodules.unpacker = unpacker = DwordUnpacker(width)
        m.submodules.completions = completions = DwordPacker(width)
        m.submodules.messages = messages = DwordPacker(width)
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
        connect(m, interrupts=interrupts.packets, packer=messages.dwords)
        for source, packets in zip((writer.requests, messages.packets, completions.packets,
                                    reader.requests), arbiter.packets, strict=True):
            connect(m, source=source, arbiter=packets)
        connect(m, arbiter.out, flipped(self.sent))

        m.d.comb += [
            *(unit.eq(self.identity) for unit in (
                reader.requester, writer.requester, interrupts.requester, target.completer)),
            reader.max_read_bytes.eq(self.max_read_bytes),
            reader.timeout.eq(self.timeout),
            writer.max_payload_bytes.eq(self.max_payload_bytes),
            arbiter.credits.eq(self.credits),
            interrupts.interrupt.eq(self.interrupt),
            interrupts.enable.eq(self.msi_enable),
            interrupts.address.eq(self.msi_address),
            interrupts.data.eq(self.msi_data),
            *(unit.restart.eq(self.restart) for unit in (reader, writer, target)),
        ]
        with m.If(self.clear_error):
            m.d.sync += self.error.valid.eq(0)
        with m.Elif(reader.error.valid & ~self.error.valid):
            m.d.sync += self.error.eq(reader.error)
        return m
