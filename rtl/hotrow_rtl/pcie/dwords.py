"""Packets one double word at a time, for registers."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .layouts import beat, dword_beat


class DwordUnpacker(wiring.Component):
    """The double words of packets.

    Parameters
    ----------
    width : int

    Attributes
    ----------
    packets : In(stream(beat(width)))
    dwords : Out(stream(dword_beat()))

    Timing
    ------
    Combinational; a double word a cycle.
    """

    def __init__(self, width):
        self.lanes = width // 32
        super().__init__({
            "packets": In(stream.Signature(beat(width))),
            "dwords": Out(stream.Signature(dword_beat())),
        })

    def elaborate(self, platform):
        m = Module()
        packets, out, lane = self.packets, self.dwords, Signal(range(self.lanes))
        final = Signal()  # of the beat
        m.d.comb += [
            final.eq(~(packets.p.keep >> lane)[1]),
            out.valid.eq(packets.valid),
            out.p.data.eq(packets.p.data.word_select(lane, 32)),
            out.p.last.eq(packets.p.last & final),
            packets.ready.eq(out.ready & final),
        ]
        with m.If(out.valid & out.ready):
            m.d.sync += lane.eq(Mux(final, 0, lane + 1))
        return m


class DwordPacker(wiring.Component):
    """Packets from their double words.

    Parameters
    ----------
    width : int

    Attributes
    ----------
    dwords : In(stream(dword_beat()))
    packets : Out(stream(beat(width)))

    Timing
    ------
    A double word a cycle, and a cycle more per beat; a beat follows its last double word by one
    cycle.
    """

    def __init__(self, width):
        self.width, self.lanes = width, width // 32
        super().__init__({
            "dwords": In(stream.Signature(dword_beat())),
            "packets": Out(stream.Signature(beat(width))),
        })

    def elaborate(self, platform):
        m = Module()
        given, out, lane = self.dwords, self.packets, Signal(range(self.lanes))
        complete = given.p.last | (lane == self.lanes - 1)
        m.d.comb += given.ready.eq(~out.valid)
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(given.valid & given.ready):
            m.d.sync += [
                out.p.data.word_select(lane, 32).eq(given.p.data),
                out.p.keep.eq(Mux(lane == 0, 1, out.p.keep << 1 | 1)),
                out.p.last.eq(given.p.last),
                lane.eq(Mux(complete, 0, lane + 1)), out.valid.eq(complete)]
        return m
