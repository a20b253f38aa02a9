"""Execute requests one after the other and write their replies."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.contract.link_frames import (
    CARD,
    CARD_BYTES,
    COUNTERS_BYTES,
    HEADER_BYTES,
    LARGEST_PAYLOAD,
    LINK_VERSION,
    REPLY_FLAG,
    TAKE_LEAST,
    WITH_PAYLOAD,
    LinkStatus,
    Operation,
)
from hotrow_rtl.host.axi_lite_slave import register_reply

from .layouts import FRAME_BYTES, header, memory_request, register_request
from .reply_store import SLOT_BYTES

_BLOCK_BYTES = 4  # of a block number in a reply


class Executor(wiring.Component):
    """Execute the requests of valid frames and write the replies to the reply store.

    Parameters
    ----------
    card : dict of str to int
        Values of the fields of `link_frames.CARD` except the version.
    peer_bytes : int
        Bytes of the peer before each header.

    Attributes
    ----------
    i : In(stream(8))
        Peer, header and payload of each request.
    peer : Out(8 * peer_bytes), header : Out(header)
        Peer and header of the current request.
    execute, repeat : In(1)
        Execute the request, or send its stored reply again; with neither, ignore it. See `Session`.
    classify : Out(1)
        High for the cycle in which the unit samples `execute`.
    registers : Out(stream(register_request)), replies : In(stream(register_reply))
    memory : Out(stream(memory_request)), to_memory : Out(stream(8)), from_memory : In(stream(8))
    memory_refused : In(1)
        `MemoryMaster.refused`.
    memory_ready, memory_failed : In(1)
        The memory can be accessed; it failed for good. The reply to a BIND carries this state, and
        accesses are refused until the memory is ready.
    drain, space : Out(1), blocks : In(stream(32)), blocks_done, blocks_more : In(1)
        Ports of `WrittenBlocks`.
    counters : In
    slot, offset, octet, write, length, write_length : Out
        Write port of the `ReplyStore`.
    send : Out(stream(range(window)))
        Slot of the reply to send.

    Timing
    ------
    A cycle per byte of peer and header, about 3 cycles, the time of the access plus a cycle per
    byte of payload, and 16 cycles for the header of the reply. The next request waits until the
    reply is sent.
    """

    def __init__(self, card, peer_bytes=0):
        self.card, self.peer_bytes = card, peer_bytes
        slot = range(card["window"])
        super().__init__({
            "i": In(stream.Signature(8)),
            "peer": Out(8 * peer_bytes),
            "header": Out(header),
            "execute": In(1), "repeat": In(1), "classify": Out(1),
            "registers": Out(stream.Signature(register_request)),
            "replies": In(stream.Signature(register_reply)),
            "memory": Out(stream.Signature(memory_request)),
            "to_memory": Out(stream.Signature(8)),
            "from_memory": In(stream.Signature(8)),
            "memory_refused": In(1),
            "memory_ready": In(1), "memory_failed": In(1),
            "drain": Out(1), "space": Out(1),
            "blocks": In(stream.Signature(32)),
            "blocks_done": In(1), "blocks_more": In(1),
            "counters": In(8 * COUNTERS_BYTES),
            "slot": Out(slot), "offset": Out(range(SLOT_BYTES)), "octet": Out(8), "write": Out(1),
            "length": Out(range(FRAME_BYTES + 1)), "write_length": Out(1),
            "send": Out(stream.Signature(slot)),
        })

    def elaborate(self, platform):
        m = Module()
        request, status = self.header, Signal(8)
        prefix_bytes = self.peer_bytes + HEADER_BYTES
        received = Signal(8 * prefix_bytes)
        m.d.comb += Cat(self.peer, request).eq(received)
        byte_idx = Signal(range(prefix_bytes))  # in `received`, or in the header of the reply
        payload_idx = Signal(16)  # bytes of payload written to the reply
        payload_bytes = Signal(16)  # of the request, left to read; or of the reply
        buffer = Signal(8 * max(CARD_BYTES, COUNTERS_BYTES))  # small payloads
        operation, length = request.operation, request.length
        writes = Cat(operation == each for each in WITH_PAYLOAD).any()
        is_register = Cat(operation == each for each in (
            Operation.READ_REGISTER, Operation.WRITE_REGISTER)).any()
        is_memory = Cat(operation == each for each in (
            Operation.READ_MEMORY, Operation.WRITE_MEMORY)).any()
        m.d.comb += [
            self.slot.eq(request.sequence), self.send.p.eq(request.sequence),
            self.length.eq(HEADER_BYTES + payload_idx),
            self.offset.eq(HEADER_BYTES + payload_idx),
            self.registers.p.write.eq(writes), self.registers.p.address.eq(request.address),
            self.registers.p.data.eq(buffer),
            self.memory.p.write.eq(writes), self.memory.p.address.eq(request.address),
            self.memory.p.length.eq(length),
            self.to_memory.p.eq(self.i.p),
            self.space.eq(payload_idx + TAKE_LEAST <= length),
        ]

        def reply(code):
            m.d.sync += [status.eq(code), byte_idx.eq(0)]
            m.next = "HEADER"

        def write_byte(octet):
            m.d.comb += [self.octet.eq(octet), self.write.eq(1)]
            m.d.sync += payload_idx.eq(payload_idx + 1)

        with m.FSM():
            with m.State("REQUEST"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += payload_idx.eq(0)
                with m.If(self.i.valid):
                    m.d.sync += [received.eq(Cat(received[8:], self.i.p)),
                                 byte_idx.eq(byte_idx + 1)]
                    with m.If(byte_idx == prefix_bytes - 1):
                        m.next = "CLASSIFY"
            with m.State("CLASSIFY"):
                m.d.comb += self.classify.eq(1)
                m.d.sync += [payload_bytes.eq(Mux(writes, length, 0)), byte_idx.eq(0)]
                m.next = "SKIP"
                with m.If(self.execute):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += buffer.eq(self._card_description())
                with m.Switch(operation):
                    with m.Case(Operation.BIND):
                        m.d.sync += payload_bytes.eq(CARD_BYTES)
                        m.next = "STATUS"
                    with m.Case(Operation.READ_COUNTERS):
                        m.d.sync += [buffer.eq(self.counters), payload_bytes.eq(COUNTERS_BYTES)]
                        m.next = "STATUS"
                    with m.Case(Operation.TAKE_WRITTEN):
                        m.next = "DRAIN"
                    with m.Case(Operation.READ_REGISTER):
                        m.next = "REGISTER"
                    with m.Case(Operation.WRITE_REGISTER):
                        m.next = "VALUE"
                    with m.Case(Operation.READ_MEMORY, Operation.WRITE_MEMORY):
                        m.next = "MEMORY"
                self._refuse(m, status, payload_bytes, is_register, is_memory, writes)
            with m.State("DROP"):  # the payload of a refused request
                m.d.comb += self.i.ready.eq(payload_bytes != 0)
                with m.If(payload_bytes == 0):
                    m.d.sync += byte_idx.eq(0)
                    m.next = "HEADER"
                with m.Elif(self.i.valid):
                    m.d.sync += payload_bytes.eq(payload_bytes - 1)
            with m.State("SKIP"):  # the payload of a request that is not executed
                m.d.comb += self.i.ready.eq(payload_bytes != 0)
                with m.If(payload_bytes == 0):
                    m.next = "REQUEST"
                    with m.If(self.repeat):
                        m.next = "SEND"
                with m.Elif(self.i.valid):
                    m.d.sync += payload_bytes.eq(payload_bytes - 1)
            with m.State("VALUE"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid):
                    m.d.sync += [buffer[:32].eq(Cat(buffer[8:32], self.i.p)),
                                 payload_bytes.eq(payload_bytes - 1)]
                    with m.If(payload_bytes == 1):
                        m.next = "REGISTER"
            with m.State("REGISTER"):
                m.d.comb += [self.registers.valid.eq(1), self.replies.ready.eq(1)]
                with m.If(self.replies.valid):
                    m.d.sync += [
                        buffer.eq(self.replies.p.data), payload_bytes.eq(Mux(writes, 0, 4)),
                        status.eq(Mux(self.replies.p.refused, LinkStatus.REFUSED, LinkStatus.OK)),
                    ]
                    m.next = "WRITE_BUFFER"
            with m.State("STATUS"):
                m.d.sync += status.eq(LinkStatus.OK)
                with m.If((operation == Operation.BIND) & ~self.memory_ready):
                    m.d.sync += status.eq(Mux(self.memory_failed, LinkStatus.MEMORY_FAILED,
                                              LinkStatus.MEMORY_STARTING))
                m.next = "WRITE_BUFFER"
            with m.State("WRITE_BUFFER"):
                with m.If(payload_idx == payload_bytes):
                    m.d.sync += byte_idx.eq(0)
                    m.next = "HEADER"
                with m.Else():
                    write_byte(buffer[:8])
                    m.d.sync += buffer.eq(buffer >> 8)
            with m.State("MEMORY"):
                m.d.comb += [
                    self.memory.valid.eq(1),
                    self.to_memory.valid.eq(self.i.valid & (payload_bytes != 0)),
                    self.i.ready.eq(self.to_memory.ready & (payload_bytes != 0)),
                    self.from_memory.ready.eq(1),
                ]
                with m.If(self.i.valid & self.i.ready):
                    m.d.sync += payload_bytes.eq(payload_bytes - 1)
                with m.If(self.from_memory.valid):
                    write_byte(self.from_memory.p)
                with m.If(self.memory.ready):
                    with m.If(self.memory_refused):
                        m.d.sync += payload_idx.eq(0)
                    reply(Mux(self.memory_refused, LinkStatus.REFUSED, LinkStatus.OK))
            with m.State("DRAIN"):
                # A block number is accepted with its last byte.
                m.d.comb += self.drain.eq(1)
                with m.If(self.blocks.valid):
                    write_byte(self.blocks.p.word_select(payload_idx[:2], 8))
                    m.d.comb += self.blocks.ready.eq(payload_idx[:2] == _BLOCK_BYTES - 1)
                with m.If(self.blocks_done):
                    reply(Mux(self.blocks_more, LinkStatus.MORE, LinkStatus.OK))
            with m.State("HEADER"):
                reply_header = Signal(header)
                m.d.comb += [
                    reply_header.eq(request),
                    reply_header.operation.eq(operation | REPLY_FLAG),
                    reply_header.status.eq(status), reply_header.length.eq(payload_idx),
                    reply_header.reserved.eq(0),
                    self.offset.eq(byte_idx),
                    self.octet.eq(Cat(reply_header).word_select(byte_idx, 8)),
                    self.write.eq(1), self.write_length.eq(1),
                ]
                m.d.sync += byte_idx.eq(byte_idx + 1)
                with m.If(byte_idx == HEADER_BYTES - 1):
                    m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += self.send.valid.eq(1)
                m.d.sync += byte_idx.eq(0)
                with m.If(self.send.ready):
                    m.next = "REQUEST"
        return m

    def _refuse(self, m, status, payload_bytes, is_register, is_memory, writes):
        """Drop the payload of a request with an error, the first of which is the status."""
        request = self.header
        operation, length = request.operation, request.length
        bad_length = Signal()
        m.d.comb += bad_length.eq(
            is_register & (length != 4)
            | is_memory & ((length == 0) | (length > LARGEST_PAYLOAD))
            | (operation == Operation.READ_COUNTERS) & (length != COUNTERS_BYTES)
            | (operation == Operation.TAKE_WRITTEN) & (
                (length < TAKE_LEAST) | (length > LARGEST_PAYLOAD) | length[:2].any()))
        errors = [
            (~Cat(operation == each for each in Operation).any(),
             LinkStatus.BAD_OPERATION),
            (bad_length, LinkStatus.BAD_LENGTH),
            (is_memory & self.memory_failed, LinkStatus.MEMORY_FAILED),
            (is_memory & ~self.memory_ready, LinkStatus.MEMORY_STARTING),
            (is_memory & ~self._in_memory(request), LinkStatus.REFUSED),
        ]
        for refused, code in reversed(errors):
            with m.If(refused):
                m.d.sync += [status.eq(code), payload_bytes.eq(Mux(writes, length, 0))]
                m.next = "DROP"

    def _card_description(self):
        """Payload of the reply to a BIND."""
        values = {"version": LINK_VERSION, **self.card}
        return Cat(Const(values[field.name], 8 * field.bytes) for field in CARD.values())

    def _in_memory(self, request):
        """All bytes of the access lie in the card's memory."""
        base, end = self.card["memory_base"], self.card["memory_base"] + self.card["memory_bytes"]
        return (request.address >= base) & (request.address + request.length <= end)
