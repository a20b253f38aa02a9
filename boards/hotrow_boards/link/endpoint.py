"""The card's end of a link, wired: frames in and out, a register master and a memory master."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.contract.link_frames import Operation
from hotrow_rtl.memory.axi import AXI4Lite, AXI4Read, AXI4Write

from .executor import Executor
from .frame_buffer import FrameBuffer
from .frame_port import FramePort
from .layouts import FRAME_BYTES, counter_events
from .memory_master import MemoryMaster
from .register_master import RegisterMaster
from .reply_store import ReplyStore
from .written_blocks import WrittenBlocks

_BITS = 16


class Session(wiring.Component):
    """Classify a request by session, peer and sequence number.

    Parameters
    ----------
    window : int
        Number of stored replies.
    peer_bytes : int
        Bytes of a peer's address.

    Attributes
    ----------
    session, sequence, operation : In
        Header fields of the request.
    peer : In(8 * peer_bytes)
        Sender of the request.
    host : Out(8 * peer_bytes)
        The bound peer.
    replaceable : In(1)
        Another session may replace the bound one.
    execute, repeat, out_of_order, foreign : Out(1)
        Class of the request, one-hot: execute it, send its stored reply again, or ignore it.
    fire : In(1)
        High for the cycle in which the executor acts on the class.

    Timing
    ------
    Combinational.
    """

    def __init__(self, window, peer_bytes=0):
        self.window = window
        super().__init__({
            "session": In(32), "sequence": In(16), "operation": In(8),
            "peer": In(8 * peer_bytes), "host": Out(8 * peer_bytes),
            "replaceable": In(1),
            "execute": Out(1), "repeat": Out(1), "out_of_order": Out(1), "foreign": Out(1),
            "fire": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        bound, bound_session = Signal(), Signal(32)
        expected, reply_count = Signal(16), Signal(range(self.window + 1))
        mine, begins, age = Signal(), Signal(), Signal(16)
        m.d.comb += [
            mine.eq(bound & (self.session == bound_session) & (self.peer == self.host)),
            begins.eq(~mine & (self.operation == Operation.BIND) & (self.session != 0)
                      & (~bound | self.replaceable)),
            age.eq(expected - 1 - self.sequence),
            self.execute.eq(begins | mine & (self.sequence == expected)),
            self.repeat.eq(mine & (age < reply_count)),
            self.out_of_order.eq(mine & ~self.execute & ~self.repeat),
            self.foreign.eq(~mine & ~begins),
        ]
        with m.If(self.fire & self.execute):
            m.d.sync += [
                bound.eq(1),
                bound_session.eq(self.session),
                self.host.eq(self.peer),
                expected.eq(self.sequence + 1),
                reply_count.eq(Mux(begins, 1, Mux(
                    reply_count == self.window, reply_count, reply_count + 1))),
            ]
        return m


class LinkCounters(wiring.Component):
    """A saturating counter for each field of `counter_events`.

    Attributes
    ----------
    events : In(counter_events)
        Counters to increment in this cycle.
    values : Out(16 * counters)
        The first counter in the lowest bits.
    """

    events: In(counter_events)
    values: Out(_BITS * counter_events.size)

    def elaborate(self, platform):
        m = Module()
        counts = Signal(data.ArrayLayout(_BITS, counter_events.size))
        for idx, event in enumerate(Cat(self.events)):
            with m.If(event & ~counts[idx].all()):
                m.d.sync += counts[idx].eq(counts[idx] + 1)
        m.d.comb += self.values.eq(Cat(counts))
        return m


class LinkEndpoint(wiring.Component):
    """Reply to the frames of the bound host.

    Parameters
    ----------
    address_width : int
        Width of a memory address; a link reaches the lower 4 GB.
    bus_bytes : int
    register_width : int
        Bits of a register's byte address.
    card : dict of str to int
        memory_base and memory_bytes (multiples of a block, a power of two of blocks), window (a
        power of two), block_log2, clock_khz: see `link_frames.CARD`.
    peer_bytes : int
        Bytes of a peer's address; 0 where only one peer exists.

    Attributes
    ----------
    frames : In(FramePort(peer_bytes))
        From and to the line.
    replaceable : In(1)
        Another host may bind while one is bound.
    registers : Out(AXI4Lite)
    read_bus : Out(AXI4Read), write_bus : Out(AXI4Write)
    marks : In(stream(range(blocks)))
        Blocks that the card wrote, counted from `memory_base`.
    memory_ready, memory_failed : In(1)
        See `Executor`.
    host_active : Out(1)
        High for a cycle when a frame of the bound host is classified.

    Timing
    ------
    A reply begins about 40 cycles after the last byte of its request, plus a cycle per byte of peer
    and payload and the time of its accesses, at a byte every 2 cycles.
    """

    def __init__(self, address_width, bus_bytes, register_width, card, peer_bytes=0):
        self.address_width, self.bus_bytes, self.card = address_width, bus_bytes, dict(card)
        self.register_width, self.peer_bytes = register_width, peer_bytes
        self.blocks = card["memory_bytes"] >> card["block_log2"]
        bus = {"address_width": address_width, "bus_bytes": bus_bytes, "id_width": 1}
        super().__init__({
            "frames": In(FramePort(peer_bytes)),
            "replaceable": In(1),
            "registers": Out(AXI4Lite(address_width=register_width)),
            "read_bus": Out(AXI4Read(**bus)),
            "write_bus": Out(AXI4Write(**bus)),
            "marks": In(stream.Signature(range(self.blocks))),
            "memory_ready": In(1, init=1), "memory_failed": In(1),
            "host_active": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        window = self.card["window"]
        depth = 1 << (window * (self.peer_bytes + FRAME_BYTES) + 64).bit_length()
        m.submodules.buffer = buffer = FrameBuffer(depth, self.peer_bytes)
        m.submodules.session = session = Session(window, self.peer_bytes)
        m.submodules.executor = executor = Executor(self.card, self.peer_bytes)
        m.submodules.registers = registers = RegisterMaster(self.register_width)
        m.submodules.memory = memory = MemoryMaster(self.address_width, self.bus_bytes)
        m.submodules.written = written = WrittenBlocks(self.blocks)
        m.submodules.counters = counters = LinkCounters()
        m.submodules.replies = replies = ReplyStore(window)

        connect(m, line=flipped(self.frames.requests), buffer=buffer.i)
        connect(m, buffer=buffer.o, executor=executor.i)
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
        connect(m, replies=replies.o, line=flipped(self.frames.replies))
        first_block = self.card["memory_base"] >> self.card["block_log2"]
        m.d.comb += [
            buffer.peer.eq(self.frames.peer),
            session.peer.eq(executor.peer),
            self.frames.host.eq(session.host),
            self.host_active.eq(executor.classify & ~session.foreign),
            session.session.eq(executor.header.session),
            session.sequence.eq(executor.header.sequence),
            session.operation.eq(executor.header.operation),
            session.replaceable.eq(self.replaceable),
            session.fire.eq(executor.classify),
            executor.execute.eq(session.execute),
            executor.repeat.eq(session.repeat),
            executor.memory_refused.eq(memory.refused),
            executor.memory_ready.eq(self.memory_ready),
            executor.memory_failed.eq(self.memory_failed),
            written.drain.eq(executor.drain),
            written.space.eq(executor.space),
            executor.blocks.p.eq(written.written.p + first_block),
            executor.blocks.valid.eq(written.written.valid),
            written.written.ready.eq(executor.blocks.ready),
            executor.blocks_done.eq(written.done),
            executor.blocks_more.eq(written.more),
            executor.counters.eq(counters.values),
            counters.events.bad_crc.eq(buffer.bad_crc),
            counters.events.wrong_length.eq(buffer.wrong_length),
            counters.events.overrun.eq(buffer.overrun | self.frames.overrun),
            counters.events.foreign.eq(executor.classify & session.foreign),
            counters.events.replayed.eq(executor.classify & session.repeat),
            counters.events.out_of_order.eq(executor.classify & session.out_of_order),
            replies.write_enable.eq(executor.write),
            replies.write_slot.eq(executor.slot),
            replies.write_offset.eq(executor.offset),
            replies.write_data.eq(executor.octet),
            replies.length.eq(executor.length),
            replies.write_length.eq(executor.write_length),
            self.frames.good.eq(buffer.good),
            self.frames.bad.eq(buffer.bad_crc | buffer.wrong_length),
        ]
        return m
