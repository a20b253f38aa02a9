"""The card's end of a link, wired: frames in and out, a master for registers, one for memory."""

from amaranth import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.memory.axi import AXI4Lite, AXI4Read, AXI4Write

from .counters import LinkCounters
from .executor import Executor
from .frame_buffer import FrameBuffer
from .layouts import FRAME_BYTES, frame_byte
from .memory_master import MemoryMaster
from .register_master import RegisterMaster
from .reply_store import ReplyStore
from .session import Session
from .written_blocks import WrittenBlocks


class LinkEndpoint(wiring.Component):
    """Answer the frames of the host that is bound.

    Parameters
    ----------
    address_width : int
        Of memory; a link reaches the lower 4 GB of it.
    bus_bytes : int
    register_width : int
        Bits of a register's byte address.
    card : dict of str to int
        memory_base and memory_bytes (multiples of a block, blocks a power of two), window (a power
        of two), block_log2, clock_khz: see `contract_link.CARD`.
    peer_bytes : int
        That name the peer which a frame comes from; 0 where there is only one.

    Members
    -------
    i : In(stream(frame_byte)), o : Out(stream(frame_byte))
    peer : In(8 * peer_bytes), host : Out(8 * peer_bytes)
        Of the frame that comes, see `FrameBuffer`; the peer that is bound, which answers go to.
    replaceable : In(1)
        Another host may bind though one is bound.
    registers : Out(AXI4Lite)
    read_bus : Out(AXI4Read), write_bus : Out(AXI4Write)
    marks : In(stream(range(blocks)))
        Blocks, counted from `memory_base`, that the card wrote.
    memory_ready, memory_failed : In(1)
        As of `Executor`.
    good, bad : Out(1)
        High for a cycle when a frame that is whole has come, or one that is not.
    heard : Out(1)
        High for a cycle when a frame of the bound host is looked at.
    overrun : In(1)
        High for a cycle when a frame was lost on its way here.

    Timing
    ------
    A request of n bytes is answered about n + 60 cycles after its last byte, and the time of its
    accesses; its answer leaves at a byte every 2 cycles.
    """

    def __init__(self, address_width, bus_bytes, register_width, card, peer_bytes=0):
        self.address_width, self.bus_bytes, self.card = address_width, bus_bytes, dict(card)
        self.register_width, self.peer_bytes = register_width, peer_bytes
        self.blocks = card["memory_bytes"] >> card["block_log2"]
        bus = {"address_width": address_width, "bus_bytes": bus_bytes, "id_width": 1}
        super().__init__({
            "i": In(stream.Signature(frame_byte)),
            "o": Out(stream.Signature(frame_byte)),
            "peer": In(8 * peer_bytes),
            "host": Out(8 * peer_bytes),
            "replaceable": In(1),
            "registers": Out(AXI4Lite(address_width=register_width)),
            "read_bus": Out(AXI4Read(**bus)),
            "write_bus": Out(AXI4Write(**bus)),
            "marks": In(stream.Signature(range(self.blocks))),
            "memory_ready": In(1, init=1), "memory_failed": In(1),
            "good": Out(1),
            "bad": Out(1),
            "heard": Out(1),
            "overrun": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        window = self.card["window"]
        depth = 1 << (window * (self.peer_bytes + FRAME_BYTES) + 64).bit_length()
        m.submodules.frames = frames = FrameBuffer(depth, self.peer_bytes)
        m.submodules.session = session = Session(window, self.peer_bytes)
        m.submodules.executor = executor = Executor(self.card, self.peer_bytes)
        m.submodules.registers = registers = RegisterMaster(self.register_width)
        m.submodules.memory = memory = MemoryMaster(self.address_width, self.bus_bytes)
        m.submodules.written = written = WrittenBlocks(self.blocks)
        m.submodules.counters = counters = LinkCounters()
        m.submodules.replies = replies = ReplyStore(window)

        connect(m, line=flipped(self.i), frames=frames.i)
        connect(m, frames=frames.o, executor=executor.i)
        connect(m, executor=executor.registers, registers=registers.requests)
        connect(m, registers=registers.replies, executor=executor.replies)
        connect(m, registers.bus, flipped(self.registers))
        connect(m, executor=executor.memory, memory=memory.requests)
        connect(m, executor=executor.to_memory, memory=memory.i)
        connect(m, memory=memory.o, executor=executor.from_memory)
        connect(m, memory.read_bus, flipped(self.read_bus))
        connect(m, memory.write_bus, flipped(self.write_bus))
        connect(m, card=flipped(self.marks), written=written.marks)
        connect(m, executor=executor.send, replies=replies.send)
        connect(m, replies=replies.o, line=flipped(self.o))
        first_block = self.card["memory_base"] >> self.card["block_log2"]
        m.d.comb += [
            frames.peer.eq(self.peer),
            session.peer.eq(executor.peer),
            self.host.eq(session.host),
            self.heard.eq(executor.judged & ~session.foreign),
            session.session.eq(executor.header.session),
            session.sequence.eq(executor.header.sequence),
            session.operation.eq(executor.header.operation),
            session.replaceable.eq(self.replaceable),
            session.advance.eq(executor.judged),
            executor.execute.eq(session.execute),
            executor.repeat.eq(session.repeat),
            executor.memory_refused.eq(memory.refused),
            executor.memory_ready.eq(self.memory_ready),
            executor.memory_failed.eq(self.memory_failed),
            written.take.eq(executor.take),
            written.room.eq(executor.room),
            executor.blocks.p.eq(written.found.p + first_block),
            executor.blocks.valid.eq(written.found.valid),
            written.found.ready.eq(executor.blocks.ready),
            executor.blocks_ended.eq(written.ended),
            executor.blocks_more.eq(written.more),
            executor.counters.eq(counters.values),
            counters.happened.bad_crc.eq(frames.bad_crc),
            counters.happened.wrong_length.eq(frames.wrong_length),
            counters.happened.overrun.eq(frames.overrun | self.overrun),
            counters.happened.foreign.eq(executor.judged & session.foreign),
            counters.happened.replayed.eq(executor.judged & session.repeat),
            counters.happened.out_of_order.eq(executor.judged & session.out_of_order),
            replies.write_enable.eq(executor.write),
            replies.write_slot.eq(executor.slot),
            replies.write_offset.eq(executor.offset),
            replies.write_data.eq(executor.octet),
            replies.length.eq(executor.length),
            replies.write_length.eq(executor.write_length),
            self.good.eq(frames.good),
            self.bad.eq(Cat(frames.bad_crc, frames.wrong_length).any()),
        ]
        return m
