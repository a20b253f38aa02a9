"""Row streamer: take complete rows out of the buffer, in order."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from .payloads import (
    arrived_copy,
    buffer_words,
    burst_end,
    placed_copy,
    placement,
    source_word,
    word_count_width,
)


class RowStream(wiring.Component):
    """Announce each copy when all its reads have ended, then stream its words.

    Parameters
    ----------
    config : Config

    Members
    -------
    placed : In(stream(placed_copy(config)))
    arrivals : In(stream)
        One `fault` per burst that was read.
    rows : Out(stream(arrived_copy(config)))
        One per copy, at the time of its first word. The fault is the worst of its bursts.
    words : Out(stream(source_word(config)))
        The words of copies without fault.
    read_enable, read_position : Out
    read_data : In(config.bus_width)
        The buffer, whose words are used up in order.
    freed : Out(1)
        A word was read.

    Timing
    ------
    Latency 1 cycle from the last arrival to the first word; throughput 1 word per cycle, those
    of faulty copies included.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "placed": In(stream.Signature(placed_copy(config))),
            "arrivals": In(stream.Signature(burst_end())),
            "rows": Out(stream.Signature(arrived_copy(config))),
            "words": Out(stream.Signature(source_word(config))),
            "read_enable": Out(1),
            "read_position": Out(range(buffer_words(config))),
            "read_data": In(config.bus_width),
            "freed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        copy, out, arrival = self.placed.p, self.words, self.arrivals
        half = Signal()  # the first of two reads has ended, with `half_fault`, else 0
        half_fault, fault = Signal(2), Signal(2)
        inside, dropping = Signal(), Signal()  # behind the first word of a copy
        word = Signal(word_count_width(self.config))
        position = Signal(range(buffer_words(self.config)))
        opens, step, final, free = Signal(), Signal(), Signal(), Signal()
        awaits_second = self.placed.valid & copy.two_reads & ~half & ~inside
        m.d.comb += [
            free.eq(~out.valid | out.ready),
            fault.eq(Mux(half_fault > arrival.p.fault, half_fault, arrival.p.fault)),
            opens.eq(self.placed.valid & ~inside & arrival.valid & (half | ~copy.two_reads)),
            self.rows.valid.eq(opens & free),
            self.rows.p.fault.eq(fault),
            self.rows.p.destination.eq(copy.destination),
            self.rows.p.bytes.eq(copy.bytes),
            self.rows.p.two_writes.eq(copy.two_writes),
            step.eq(free & (inside | (opens & self.rows.ready))),
            final.eq(word == copy.placement.words),
            arrival.ready.eq(awaits_second | (opens & step)),
            self.placed.ready.eq(step & final),
            self.read_enable.eq(step),
            self.read_position.eq(position),
            self.freed.eq(step),
        ]
        with m.If(awaits_second & arrival.valid):
            m.d.sync += [half.eq(1), half_fault.eq(arrival.p.fault)]
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        of_word = Signal(placement(self.config))
        first, last = Signal(), Signal()
        with m.If(step):
            m.d.sync += [
                position.eq(position + 1),
                word.eq(Mux(final, 0, word + 1)),
                inside.eq(~final),
                half.eq(0),
                half_fault.eq(0),
                out.valid.eq(~Mux(inside, dropping, fault != 0)),
                of_word.eq(copy.placement),
                first.eq(~inside),
                last.eq(final),
            ]
            with m.If(~inside):
                m.d.sync += dropping.eq(fault != 0)
        m.d.comb += [  # the buffer's output holds until the next step
            out.p.data.eq(self.read_data),
            out.p.placement.eq(of_word),
            out.p.first.eq(first),
            out.p.last.eq(last),
        ]
        return m
