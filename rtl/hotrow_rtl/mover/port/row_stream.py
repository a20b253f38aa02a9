"""RowStream: read complete rows from the reorder buffer, in order."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from .payloads import (
    aligned_transfer,
    alignment,
    buffer_words,
    burst_response,
    fetched_row,
    source_word,
    word_count_width,
)


class RowStream(wiring.Component):
    """Announce each transfer when all its read data has come, then stream its words.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    aligned : In(stream(aligned_transfer(config)))
    responses : In(stream(burst_response()))
        One per read burst.
    rows : Out(stream(fetched_row(config)))
        One per transfer, at the latest in the cycle in which its first word is read; with the worst
        fault of its bursts.
    words : Out(stream(source_word(config)))
        The words of transfers without a fault.
    read_enable, read_address : Out
    read_data : In(config.bus_width)
        The reorder buffer.
    freed : Out(1)
        A word was read.

    Timing
    ------
    Latency 1 cycle from the last response to the first word; throughput 1 word per cycle, the
    dropped words of faulty transfers included.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "aligned": In(stream.Signature(aligned_transfer(config))),
            "responses": In(stream.Signature(burst_response())),
            "rows": Out(stream.Signature(fetched_row(config))),
            "words": Out(stream.Signature(source_word(config))),
            "read_enable": Out(1),
            "read_address": Out(range(buffer_words(config))),
            "read_data": In(config.bus_width),
            "freed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        transfer, out, response = self.aligned.p, self.words, self.responses
        half = Signal()  # the first of two bursts has ended, with `half_fault`
        half_fault, fault = Signal(2), Signal(2)
        inside, dropping = Signal(), Signal()  # after the first word of a transfer
        word_idx = Signal(word_count_width(self.config))
        address = Signal(range(buffer_words(self.config)))
        begin, step, final, advance = Signal(), Signal(), Signal(), Signal()
        announced = Signal()  # Timing: so that `rows.valid` does not depend on `words.ready`
        awaits_second = self.aligned.valid & transfer.two_reads & ~half & ~inside
        m.d.comb += [
            advance.eq(~out.valid | out.ready),
            fault.eq(Mux(half_fault > response.p.fault, half_fault, response.p.fault)),
            begin.eq(
                self.aligned.valid & ~inside & response.valid & (half | ~transfer.two_reads)),
            self.rows.valid.eq(begin & ~announced),
            self.rows.p.fault.eq(fault),
            self.rows.p.destination.eq(transfer.destination),
            self.rows.p.bytes.eq(transfer.bytes),
            self.rows.p.two_writes.eq(transfer.two_writes),
            step.eq(advance & (inside | (begin & (announced | self.rows.ready)))),
            final.eq(word_idx == transfer.alignment.words_minus_1),
            response.ready.eq(awaits_second | (begin & step)),
            self.aligned.ready.eq(step & final),
            self.read_enable.eq(step),
            self.read_address.eq(address),
            self.freed.eq(step),
        ]
        m.d.sync += announced.eq(begin & (announced | self.rows.ready) & ~step)
        with m.If(awaits_second & response.valid):
            m.d.sync += [half.eq(1), half_fault.eq(response.p.fault)]
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        alignment_q = Signal(alignment(self.config))
        first, last = Signal(), Signal()
        with m.If(step):
            m.d.sync += [
                address.eq(address + 1),
                word_idx.eq(Mux(final, 0, word_idx + 1)),
                inside.eq(~final),
                half.eq(0),
                half_fault.eq(0),
                out.valid.eq(~Mux(inside, dropping, fault != 0)),
                alignment_q.eq(transfer.alignment),
                first.eq(~inside),
                last.eq(final),
            ]
            with m.If(~inside):
                m.d.sync += dropping.eq(fault != 0)
        m.d.comb += [  # the read data of the buffer is stable until the next step
            out.p.data.eq(self.read_data),
            out.p.alignment.eq(alignment_q),
            out.p.first.eq(first),
            out.p.last.eq(last),
        ]
        return m
