"""A store-and-forward FIFO of datagrams, from words to bytes."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.primitives.ram import Ram

from .layouts import LARGEST_DATAGRAM, LARGEST_WORDS, WORD_BYTES, peer, received_word

HEADING_WORDS = 2  # before each datagram: the peer's address; the peer's port and the length
STORED_WORDS = HEADING_WORDS + LARGEST_WORDS


class DatagramFifo(wiring.Component):
    """Store datagrams at the rate of the line and forward the valid ones as bytes.

    An invalid datagram (empty, too long, damaged, or with more or fewer bytes than its length, like
    a fragment) is forwarded as a single byte, so that the link counts it as a frame of the wrong
    length.

    Parameters
    ----------
    depth : int
        Words, a power of two above `STORED_WORDS`.

    Attributes
    ----------
    i : In(stream(received_word))
    o : Out(stream(8)), last : Out(1)
        `last` is high with the last byte of a datagram.
    peer : Out(peer)
        Sender of the datagram in `o`.
    overrun : Out(1)
        High for a cycle when a datagram was dropped for lack of space.

    Timing
    ------
    `i` accepts a word a cycle, plus 3 cycles per datagram. `o` sends a byte a cycle, plus 2 cycles
    per datagram, from 6 cycles after its last word.
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
        heading_layout = data.StructLayout({"length": 16, "port": 16})
        read_idx = Signal(range(self.depth))
        end = self._write(m, rows, heading_layout, read_idx)

        # A stream of the words of complete datagrams.
        valid, ready, load = Signal(), Signal(), Signal()
        m.d.comb += [
            load.eq((read_idx != end) & (~valid | ready)),
            rows.read_enable.eq(load),
            rows.read_address.eq(read_idx),
        ]
        m.d.sync += valid.eq(load | valid & ~ready)
        with m.If(load):
            m.d.sync += read_idx.eq(read_idx + 1)
        self._read(m, rows.read_data, heading_layout, valid, ready)
        return m

    def _write(self, m, rows, heading_layout, read_idx):
        """Write the words of `i`; return the end of the last complete datagram."""
        word = self.i.p
        # A datagram is written after the space for its heading.
        end, write_idx = Signal(range(self.depth)), Signal(range(self.depth))
        count, overflow, good = Signal(range(LARGEST_WORDS + 2)), Signal(), Signal()
        last_word, free_words, too_long = Signal(received_word), Signal.like(end), Signal()
        m.d.comb += [
            free_words.eq(read_idx - end - 1),
            too_long.eq(count >= LARGEST_WORDS),
        ]
        with m.FSM():
            with m.State("FIRST"):
                m.d.sync += [overflow.eq(free_words < STORED_WORDS), count.eq(0),
                             write_idx.eq(end + HEADING_WORDS)]
                with m.If(self.i.valid):
                    m.next = "WORD"
            with m.State("WORD"):
                m.d.comb += [
                    self.i.ready.eq(1),
                    rows.write_address.eq(write_idx), rows.write_data.eq(word.data),
                    rows.write_enable.eq(self.i.valid & ~overflow & ~too_long),
                ]
                with m.If(self.i.valid):
                    m.d.sync += last_word.eq(word)
                    with m.If(count <= LARGEST_WORDS):
                        m.d.sync += [count.eq(count + 1), write_idx.eq(write_idx + 1)]
                    with m.If(word.last):
                        m.next = "ADDRESS"
            with m.State("ADDRESS"):
                m.d.comb += [
                    rows.write_address.eq(end), rows.write_data.eq(last_word.peer.address),
                    rows.write_enable.eq(~overflow),
                    self.overrun.eq(overflow),
                ]
                length = last_word.length
                m.d.sync += good.eq(
                    ~last_word.error & (length != 0) & (length <= LARGEST_DATAGRAM)
                    & (count == (length + WORD_BYTES - 1) // WORD_BYTES)
                    & (last_word.last_be >> (length - 1)[:2]).any())
                m.next = "PORT"
                with m.If(overflow):
                    m.next = "FIRST"
            with m.State("PORT"):
                heading = Signal(heading_layout)
                m.d.comb += [
                    heading.port.eq(last_word.peer.port),
                    heading.length.eq(Mux(good, last_word.length, 0)),
                    rows.write_address.eq(end + 1), rows.write_data.eq(heading),
                    rows.write_enable.eq(1),
                ]
                m.d.sync += end.eq(Mux(good, write_idx, end + HEADING_WORDS))
                m.next = "FIRST"
        return end

    def _read(self, m, word, heading_layout, valid, ready):
        """Split words into bytes."""
        bytes_left, lane = Signal(range(LARGEST_DATAGRAM + 1)), Signal(range(WORD_BYTES))
        heading = data.View(heading_layout, word)
        m.d.comb += self.last.eq(bytes_left <= 1)
        with m.FSM():
            with m.State("ADDRESS"):
                m.d.comb += ready.eq(1)
                with m.If(valid):
                    m.d.sync += self.peer.address.eq(word)
                    m.next = "PORT"
            with m.State("PORT"):
                m.d.comb += ready.eq(1)
                m.d.sync += lane.eq(0)
                with m.If(valid):
                    m.d.sync += [self.peer.port.eq(heading.port), bytes_left.eq(heading.length)]
                    m.next = "BYTES"
                    with m.If(heading.length == 0):
                        m.next = "INVALID"
            with m.State("BYTES"):
                m.d.comb += [
                    self.o.valid.eq(valid),
                    self.o.p.eq(word.word_select(lane, 8)),
                    ready.eq(self.o.ready & (self.last | (lane == WORD_BYTES - 1))),
                ]
                with m.If(self.o.valid & self.o.ready):
                    m.d.sync += [bytes_left.eq(bytes_left - 1), lane.eq(lane + 1)]
                    with m.If(self.last):
                        m.next = "ADDRESS"
            with m.State("INVALID"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "ADDRESS"
