"""Datagrams that wait until they are known to be whole, and until their bytes are taken."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.primitives.ram import Ram

from .layouts import LARGEST_DATAGRAM, LARGEST_WORDS, WORD_BYTES, peer, received_word

HEADING_WORDS = 2  # before each datagram: the peer's address; its port, and the length
STORED_WORDS = HEADING_WORDS + LARGEST_WORDS


class DatagramStore(wiring.Component):
    """Take datagrams as fast as they come, and give them away as bytes.

    A datagram that cannot be a frame (empty, too long, damaged, or of fewer or more bytes than its
    length says, as a fragment is) is given away as a single byte, which is no frame either: so it
    is counted where all such are.

    Parameters
    ----------
    depth : int
        Words, a power of two above `STORED_WORDS`.

    Members
    -------
    i : In(stream(received_word))
    o : Out(stream(8)), last : Out(1)
        `last` is high with the last byte of a datagram.
    peer : Out(peer)
        That the datagram in `o` comes from.
    overrun : Out(1)
        High for a cycle when a datagram has been dropped for which there was no room.

    Timing
    ------
    A word a cycle comes in, three cycles more for each datagram. A byte a cycle goes out, three
    cycles more for each datagram, from 4 cycles after its last word on.
    """

    def __init__(self, depth):
        if depth & (depth - 1) or depth <= STORED_WORDS:
            raise ValueError(f"depth must be a power of two above {STORED_WORDS}, not {depth}")
        self.depth = depth
        super().__init__({
            "i": In(stream.Signature(received_word)),
            "o": Out(stream.Signature(8)),
            "last": Out(1),
            "peer": Out(peer),
            "overrun": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = Ram(8 * WORD_BYTES, self.depth)
        ports = data.StructLayout({"length": 16, "port": 16})
        read_at = Signal(range(self.depth))
        end = self._take(m, rows, ports, read_at)

        # Words of whole datagrams, one after the other.
        valid, take, load = Signal(), Signal(), Signal()
        m.d.comb += [
            load.eq((read_at != end) & (~valid | take)),
            rows.read_enable.eq(load),
            rows.read_address.eq(read_at),
        ]
        m.d.sync += valid.eq(load | valid & ~take)
        with m.If(load):
            m.d.sync += read_at.eq(read_at + 1)
        self._give(m, rows.read_data, ports, valid, take)
        return m

    def _take(self, m, rows, ports, read_at):
        """Write what comes; return where the last whole datagram ends."""
        word = self.i.p
        # The datagram that comes is written behind the place for its heading.
        end, at = Signal(range(self.depth)), Signal(range(self.depth))
        count, lost, good = Signal(range(LARGEST_WORDS + 2)), Signal(), Signal()
        kept, free, too_long = Signal(received_word), Signal.like(end), Signal()
        m.d.comb += [
            free.eq(read_at - end - 1),
            too_long.eq(count >= LARGEST_WORDS),
        ]
        with m.FSM():
            with m.State("FIRST"):
                m.d.sync += [lost.eq(free < STORED_WORDS), at.eq(end + HEADING_WORDS), count.eq(0)]
                with m.If(self.i.valid):
                    m.next = "WORD"
            with m.State("WORD"):
                m.d.comb += [
                    self.i.ready.eq(1),
                    rows.write_address.eq(at), rows.write_data.eq(word.data),
                    rows.write_enable.eq(self.i.valid & ~lost & ~too_long),
                ]
                with m.If(self.i.valid):
                    m.d.sync += kept.eq(word)
                    with m.If(count <= LARGEST_WORDS):
                        m.d.sync += [count.eq(count + 1), at.eq(at + 1)]
                    with m.If(word.last):
                        m.next = "ADDRESS"
            with m.State("ADDRESS"):
                m.d.comb += [
                    rows.write_address.eq(end), rows.write_data.eq(kept.peer.address),
                    rows.write_enable.eq(~lost),
                    self.overrun.eq(lost),
                ]
                length = kept.length
                m.d.sync += good.eq(
                    ~kept.error & (length != 0) & (length <= LARGEST_DATAGRAM)
                    & (count == (length + WORD_BYTES - 1) // WORD_BYTES)
                    & (kept.last_be >> (length - 1)[:2]).any())
                m.next = "PORT"
                with m.If(lost):
                    m.next = "FIRST"
            with m.State("PORT"):
                told = Signal(ports)
                m.d.comb += [
                    told.port.eq(kept.peer.port), told.length.eq(Mux(good, kept.length, 0)),
                    rows.write_address.eq(end + 1), rows.write_data.eq(told),
                    rows.write_enable.eq(1),
                ]
                m.d.sync += end.eq(Mux(good, at, end + HEADING_WORDS))
                m.next = "FIRST"
        return end

    def _give(self, m, word, ports, valid, take):
        """Cut words into bytes."""
        left, lane = Signal(range(LARGEST_DATAGRAM + 1)), Signal(range(WORD_BYTES))
        heading = data.View(ports, word)
        m.d.comb += self.last.eq(left <= 1)
        with m.FSM():
            with m.State("ADDRESS"):
                m.d.comb += take.eq(1)
                with m.If(valid):
                    m.d.sync += self.peer.address.eq(word)
                    m.next = "PORT"
            with m.State("PORT"):
                m.d.comb += take.eq(1)
                m.d.sync += lane.eq(0)
                with m.If(valid):
                    m.d.sync += [self.peer.port.eq(heading.port), left.eq(heading.length)]
                    m.next = "BYTES"
                    with m.If(heading.length == 0):
                        m.next = "NONE"
            with m.State("BYTES"):
                m.d.comb += [
                    self.o.valid.eq(valid),
                    self.o.p.eq(word.word_select(lane, 8)),
                    take.eq(self.o.ready & (self.last | (lane == WORD_BYTES - 1))),
                ]
                with m.If(self.o.valid & self.o.ready):
                    m.d.sync += [left.eq(left - 1), lane.eq(lane + 1)]
                    with m.If(self.last):
                        m.next = "ADDRESS"
            with m.State("NONE"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "ADDRESS"
