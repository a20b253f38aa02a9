"""Requests are judged, carried out and answered, one after the other."""

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

_BLOCK_BYTES = 4  # of a block's number in an answer


class Executor(wiring.Component):
    """Take requests whose frames are whole, use the card for them, and leave the answers.

    Parameters
    ----------
    card : dict of str to int
        Values of `contract_link.CARD`, but for the version.
    peer_bytes : int
        Before each header.

    Members
    -------
    i : In(stream(8))
        Peer, header and payload of one request after the other.
    peer : Out(8 * peer_bytes), header : Out(header)
        Of the request in hand.
    execute, repeat : In(1)
        What to do with it; neither: ignore it. See `Session`.
    judged : Out(1)
        High for the cycle in which they are looked at.
    registers : Out(stream(register_request)), replies : In(stream(register_reply))
    memory : Out(stream(memory_request)), to_memory : Out(stream(8)), from_memory : In(stream(8))
    memory_refused : In(1)
        As of `MemoryMaster`.
    memory_ready, memory_failed : In(1)
        It can be accessed, or never will be. A BIND tells, accesses before that are refused.
    take, room : Out(1), blocks : In(stream(32)), blocks_ended, blocks_more : In(1)
        As of `WrittenBlocks`.
    counters : In
    slot, offset, octet, write, length, write_length : Out
        Where the answer goes: see `ReplyStore`.
    send : Out(stream(range(window)))

    Timing
    ------
    A cycle per byte of peer and header, 16 for the header of the answer, a cycle per byte of
    payload beside the time of the access; then the answer is sent before the next request is
    looked at.
    """

    def __init__(self, card, peer_bytes=0):
        self.card, self.peer_bytes = card, peer_bytes
        slot = range(card["window"])
        super().__init__({
            "i": In(stream.Signature(8)),
            "peer": Out(8 * peer_bytes),
            "header": Out(header),
            "execute": In(1), "repeat": In(1), "judged": Out(1),
            "registers": Out(stream.Signature(register_request)),
            "replies": In(stream.Signature(register_reply)),
            "memory": Out(stream.Signature(memory_request)),
            "to_memory": Out(stream.Signature(8)),
            "from_memory": In(stream.Signature(8)),
            "memory_refused": In(1),
            "memory_ready": In(1), "memory_failed": In(1),
            "take": Out(1), "room": Out(1),
            "blocks": In(stream.Signature(32)),
            "blocks_ended": In(1), "blocks_more": In(1),
            "counters": In(8 * COUNTERS_BYTES),
            "slot": Out(slot), "offset": Out(range(SLOT_BYTES)), "octet": Out(8), "write": Out(1),
            "length": Out(range(FRAME_BYTES + 1)), "write_length": Out(1),
            "send": Out(stream.Signature(slot)),
        })

    def elaborate(self, platform):
        m = Module()
        asked, status = self.header, Signal(8)
        heading = self.peer_bytes + HEADER_BYTES
        received = Signal(8 * heading)
        m.d.comb += Cat(self.peer, asked).eq(received)
        at = Signal(range(heading))  # byte of it, or of the answer's header
        told, wanted = Signal(16), Signal(16)  # bytes of payload so far, and in all
        short = Signal(8 * max(CARD_BYTES, COUNTERS_BYTES))  # of answers that are at hand
        operation, length = asked.operation, asked.length
        writes = Cat(operation == each for each in WITH_PAYLOAD).any()
        is_register = Cat(operation == each for each in (
            Operation.READ_REGISTER, Operation.WRITE_REGISTER)).any()
        is_memory = Cat(operation == each for each in (
            Operation.READ_MEMORY, Operation.WRITE_MEMORY)).any()
        m.d.comb += [
            self.slot.eq(asked.sequence), self.send.p.eq(asked.sequence),
            self.length.eq(HEADER_BYTES + told),
            self.offset.eq(HEADER_BYTES + told),
            self.registers.p.write.eq(writes), self.registers.p.address.eq(asked.address),
            self.registers.p.data.eq(short),
            self.memory.p.write.eq(writes), self.memory.p.address.eq(asked.address),
            self.memory.p.length.eq(length),
            self.to_memory.p.eq(self.i.p),
            self.room.eq(told + TAKE_LEAST <= length),
        ]

        def answer(code):
            m.d.sync += [status.eq(code), at.eq(0)]
            m.next = "HEADER"

        def put(octet):
            m.d.comb += [self.octet.eq(octet), self.write.eq(1)]
            m.d.sync += told.eq(told + 1)

        with m.FSM():
            with m.State("REQUEST"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += told.eq(0)
                with m.If(self.i.valid):
                    m.d.sync += [received.eq(Cat(received[8:], self.i.p)), at.eq(at + 1)]
                    with m.If(at == heading - 1):
                        m.next = "JUDGE"
            with m.State("JUDGE"):
                m.d.comb += self.judged.eq(1)
                m.d.sync += [wanted.eq(Mux(writes, length, 0)), at.eq(0)]
                m.next = "SKIP"
                with m.If(self.execute):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += short.eq(self._card())
                with m.Switch(operation):
                    with m.Case(Operation.BIND):
                        m.d.sync += wanted.eq(CARD_BYTES)
                        m.next = "SHORT"
                    with m.Case(Operation.READ_COUNTERS):
                        m.d.sync += [short.eq(self.counters), wanted.eq(COUNTERS_BYTES)]
                        m.next = "SHORT"
                    with m.Case(Operation.TAKE_WRITTEN):
                        m.next = "TAKE"
                    with m.Case(Operation.READ_REGISTER):
                        m.next = "REGISTER"
                    with m.Case(Operation.WRITE_REGISTER):
                        m.next = "VALUE"
                    with m.Case(Operation.READ_MEMORY, Operation.WRITE_MEMORY):
                        m.next = "MEMORY"
                bad_length = Signal()
                m.d.comb += bad_length.eq(
                    is_register & (length != 4)
                    | is_memory & ((length == 0) | (length > LARGEST_PAYLOAD))
                    | (operation == Operation.READ_COUNTERS) & (length != COUNTERS_BYTES)
                    | (operation == Operation.TAKE_WRITTEN) & (
                        (length < TAKE_LEAST) | (length > LARGEST_PAYLOAD) | length[:2].any()))
                refusals = [
                    (~Cat(operation == each for each in Operation).any(),
                     LinkStatus.BAD_OPERATION),
                    (bad_length, LinkStatus.BAD_LENGTH),
                    (is_memory & self.memory_failed, LinkStatus.MEMORY_FAILED),
                    (is_memory & ~self.memory_ready, LinkStatus.MEMORY_STARTING),
                    (is_memory & ~self._exists(asked), LinkStatus.REFUSED),
                ]
                for refused, code in reversed(refusals):
                    with m.If(refused):
                        m.d.sync += [status.eq(code), wanted.eq(Mux(writes, length, 0))]
                        m.next = "DROP"
            with m.State("DROP"):  # the payload of a request that is refused
                m.d.comb += self.i.ready.eq(wanted != 0)
                with m.If(wanted == 0):
                    m.d.sync += at.eq(0)
                    m.next = "HEADER"
                with m.Elif(self.i.valid):
                    m.d.sync += wanted.eq(wanted - 1)
            with m.State("SKIP"):  # and of one that is not carried out
                m.d.comb += self.i.ready.eq(wanted != 0)
                with m.If(wanted == 0):
                    m.next = "REQUEST"
                    with m.If(self.repeat):
                        m.next = "SEND"
                with m.Elif(self.i.valid):
                    m.d.sync += wanted.eq(wanted - 1)
            with m.State("VALUE"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid):
                    m.d.sync += [short[:32].eq(Cat(short[8:32], self.i.p)), wanted.eq(wanted - 1)]
                    with m.If(wanted == 1):
                        m.next = "REGISTER"
            with m.State("REGISTER"):
                m.d.comb += [self.registers.valid.eq(1), self.replies.ready.eq(1)]
                with m.If(self.replies.valid):
                    m.d.sync += [short.eq(self.replies.p.data), wanted.eq(Mux(writes, 0, 4))]
                    m.d.sync += status.eq(
                        Mux(self.replies.p.refused, LinkStatus.REFUSED, LinkStatus.OK))
                    m.next = "BYTES"
            with m.State("SHORT"):
                m.d.sync += status.eq(LinkStatus.OK)
                with m.If((operation == Operation.BIND) & ~self.memory_ready):
                    m.d.sync += status.eq(Mux(self.memory_failed, LinkStatus.MEMORY_FAILED,
                                              LinkStatus.MEMORY_STARTING))
                m.next = "BYTES"
            with m.State("BYTES"):
                with m.If(told == wanted):
                    m.d.sync += at.eq(0)
                    m.next = "HEADER"
                with m.Else():
                    put(short[:8])
                    m.d.sync += short.eq(short >> 8)
            with m.State("MEMORY"):
                m.d.comb += [
                    self.memory.valid.eq(1),
                    self.to_memory.valid.eq(self.i.valid & (wanted != 0)),
                    self.i.ready.eq(self.to_memory.ready & (wanted != 0)),
                    self.from_memory.ready.eq(1),
                ]
                with m.If(self.i.valid & self.i.ready):
                    m.d.sync += wanted.eq(wanted - 1)
                with m.If(self.from_memory.valid):
                    put(self.from_memory.p)
                with m.If(self.memory.ready):
                    with m.If(self.memory_refused):
                        m.d.sync += told.eq(0)
                    answer(Mux(self.memory_refused, LinkStatus.REFUSED, LinkStatus.OK))
            with m.State("TAKE"):
                # A block's number is told by its bytes, the last of which takes it.
                m.d.comb += self.take.eq(1)
                with m.If(self.blocks.valid):
                    put(self.blocks.p.word_select(told[:2], 8))
                    m.d.comb += self.blocks.ready.eq(told[:2] == _BLOCK_BYTES - 1)
                with m.If(self.blocks_ended):
                    answer(Mux(self.blocks_more, LinkStatus.MORE, LinkStatus.OK))
            with m.State("HEADER"):
                given = Signal(header)
                m.d.comb += [
                    given.eq(asked),
                    given.operation.eq(operation | REPLY_FLAG),
                    given.status.eq(status), given.length.eq(told), given.reserved.eq(0),
                    self.offset.eq(at),
                    self.octet.eq(Cat(given).word_select(at, 8)),
                    self.write.eq(1), self.write_length.eq(1),
                ]
                m.d.sync += at.eq(at + 1)
                with m.If(at == HEADER_BYTES - 1):
                    m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += self.send.valid.eq(1)
                m.d.sync += at.eq(0)
                with m.If(self.send.ready):
                    m.next = "REQUEST"
        return m

    def _card(self):
        """What a BIND is answered."""
        values = {"version": LINK_VERSION, **self.card}
        return Cat(Const(values[field.name], 8 * field.bytes) for field in CARD.values())

    def _exists(self, asked):
        """Whether all bytes of an access are of the card's memory."""
        base, end = self.card["memory_base"], self.card["memory_base"] + self.card["memory_bytes"]
        return (asked.address >= base) & (asked.address + asked.length <= end)
