"""Bridge: AXI4 masters and a register window on a PCI Express link."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..memory.axi import AXI4Lite
from .dwords import DwordPacker, DwordUnpacker
from .layouts import Error, beat
from .msi import InterruptWriter
from .packet_arbiter import PacketArbiter
from .packet_router import PacketRouter
from .read_requester import ReadRequester
from .target import Target
from .write_requester import WriteRequester

SOURCES = ("writes", "interrupts", "completions", "reads")  # of packets, in the order of `credits`


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
