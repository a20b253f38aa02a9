"""Frames over a UDP port."""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.primitives.ram import Ram

from ..link.frame_port import FramePort
from ..link.layouts import frame_byte
from .datagram_fifo import STORED_WORDS, DatagramFifo
from .layouts import (
    LARGEST_DATAGRAM,
    LARGEST_WORDS,
    PEER_BYTES,
    WORD_BYTES,
    peer,
    received_word,
    sent_word,
)


class DatagramPacker(wiring.Component):
    """Buffer a whole frame, then send it as a datagram.

    A datagram begins with its length and must not stall on the line.

    Attributes
    ----------
    i : In(stream(frame_byte))
    peer : In(peer)
        Destination of the frame, sampled when `i` accepts its first byte.
    o : Out(stream(sent_word))

    Timing
    ------
    `i` accepts a byte a cycle; 2 cycles after the last byte, `o` sends a word a cycle.
    """

    i: In(stream.Signature(frame_byte))
    peer: In(peer)
    o: Out(stream.Signature(sent_word))

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = Ram(8 * WORD_BYTES, LARGEST_WORDS, parts=WORD_BYTES)
        count = Signal(range(LARGEST_DATAGRAM + 1))
        destination = Signal(peer)
        word_idx, word_count = Signal(range(LARGEST_WORDS + 1)), Signal(range(LARGEST_WORDS + 1))
        load = Signal()
        m.d.comb += [
            rows.write_address.eq(count // WORD_BYTES),
            rows.write_data.eq(self.i.p.data.replicate(WORD_BYTES)),
            word_count.eq((count + WORD_BYTES - 1) // WORD_BYTES),
            rows.read_address.eq(word_idx),
            rows.read_enable.eq(load),
            self.o.p.data.eq(rows.read_data),
            self.o.p.peer.eq(destination),
            self.o.p.length.eq(count),
            self.o.p.last_be.eq(
                self.o.p.last << ((count + WORD_BYTES - 1) % WORD_BYTES)),
        ]
        m.d.sync += self.o.valid.eq(load | self.o.valid & ~self.o.ready)
        with m.If(load):
            m.d.sync += [word_idx.eq(word_idx + 1), self.o.p.last.eq(word_idx == word_count - 1)]
        with m.FSM():
            with m.State("BYTES"):
                m.d.comb += [
                    self.i.ready.eq(1),
                    rows.write_enable.eq(Cat(
                        self.i.valid & (count % WORD_BYTES == lane) for lane in range(WORD_BYTES))),
                ]
                with m.If(self.i.valid):
                    m.d.sync += count.eq(count + 1)
                    with m.If(count == 0):
                        m.d.sync += destination.eq(self.peer)
                    with m.If(self.i.p.last):
                        m.next = "WORDS"
            with m.State("WORDS"):
                m.d.comb += load.eq((word_idx != word_count) & (~self.o.valid | self.o.ready))
                with m.If(self.o.valid & self.o.ready & self.o.p.last):
                    m.d.sync += [count.eq(0), word_idx.eq(0)]
                    m.next = "BYTES"
        return m


class UdpPort(wiring.Component):
    """Carry frames in datagrams, one in each.

    Parameters
    ----------
    window : int
        Number of datagrams of the largest size that can be stored.

    Attributes
    ----------
    received : In(stream(received_word)), sent : Out(stream(sent_word))
        Datagrams from and to the network.
    frames : Out(FramePort(PEER_BYTES))
        `overrun` is high for a cycle when a datagram was dropped for lack of space.

    Timing
    ------
    See `DatagramFifo` and `DatagramPacker`.
    """

    def __init__(self, window):
        self.window = window
        super().__init__({
            "received": In(stream.Signature(received_word)),
            "sent": Out(stream.Signature(sent_word)),
            "frames": Out(FramePort(PEER_BYTES)),
        })

    def elaborate(self, platform):
        m, frames = Module(), self.frames
        depth = 1 << (self.window * STORED_WORDS).bit_length()
        m.submodules.fifo = fifo = DatagramFifo(depth)
        m.submodules.packer = packer = DatagramPacker()
        connect(m, network=flipped(self.received), fifo=fifo.i)
        connect(m, link=flipped(frames.replies), packer=packer.i)
        connect(m, packer=packer.o, network=flipped(self.sent))
        m.d.comb += [
            frames.requests.valid.eq(fifo.o.valid),
            frames.requests.p.data.eq(fifo.o.p),
            frames.requests.p.last.eq(fifo.last),
            fifo.o.ready.eq(frames.requests.ready),
            frames.peer.eq(fifo.peer),
            packer.peer.eq(frames.host),
            frames.overrun.eq(fifo.overrun),
        ]
        return m
