"""Answers become datagrams."""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.primitives.ram import Ram

from ..link.layouts import frame_byte
from .layouts import LARGEST_DATAGRAM, LARGEST_WORDS, WORD_BYTES, peer, sent_word


class AnswerBuffer(wiring.Component):
    """Keep a frame until all of it is there, as a datagram begins with its length and must not
    pause on the line.

    Members
    -------
    i : In(stream(frame_byte))
    peer : In(peer)
        That the frame goes to; looked at when its first byte is taken.
    o : Out(stream(sent_word))

    Timing
    ------
    A byte a cycle until the frame's last, then a word a cycle from 2 cycles later on.
    """

    i: In(stream.Signature(frame_byte))
    peer: In(peer)
    o: Out(stream.Signature(sent_word))

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = Ram(8 * WORD_BYTES, LARGEST_WORDS, parts=WORD_BYTES)
        count = Signal(range(LARGEST_DATAGRAM + 1))
        to = Signal(peer)
        at, words = Signal(range(LARGEST_WORDS + 1)), Signal(range(LARGEST_WORDS + 1))
        load = Signal()
        m.d.comb += [
            rows.write_address.eq(count // WORD_BYTES),
            rows.write_data.eq(self.i.p.data.replicate(WORD_BYTES)),
            words.eq((count + WORD_BYTES - 1) // WORD_BYTES),
            rows.read_address.eq(at),
            rows.read_enable.eq(load),
            self.o.p.data.eq(rows.read_data),
            self.o.p.peer.eq(to),
            self.o.p.length.eq(count),
            self.o.p.last_be.eq(
                self.o.p.last << ((count + WORD_BYTES - 1) % WORD_BYTES)),
        ]
        m.d.sync += self.o.valid.eq(load | self.o.valid & ~self.o.ready)
        with m.If(load):
            m.d.sync += [at.eq(at + 1), self.o.p.last.eq(at == words - 1)]
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
                        m.d.sync += to.eq(self.peer)
                    with m.If(self.i.p.last):
                        m.next = "WORDS"
            with m.State("WORDS"):
                m.d.comb += load.eq((at != words) & (~self.o.valid | self.o.ready))
                with m.If(self.o.valid & self.o.ready & self.o.p.last):
                    m.d.sync += [count.eq(0), at.eq(0)]
                    m.next = "BYTES"
        return m
