"""Bag words: what row ports read, each in its own order, as one stream in the order of the list."""

from functools import reduce
from operator import or_

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .bag_layouts import bag_end, bag_read
from .beat_layouts import pooled_row, row_setting
from .config import ROW_ALIGNMENT, Config, log2
from .contract import Status
from .fifo import RamFifo
from .realigner import Realigner
from .row_layouts import arrived_copy, source_word, word_count_width
from .skid import Skid

ROWS_AHEAD = 16  # that are told before their words


class BagWords(wiring.Component):
    """Take rows from their ports in order, give the words of each from a first byte on, and tell
    what becomes of each bag.

    In place of a row that is not read, or not without a fault, come as many words of anything: what
    is computed of them is not written.

    Parameters
    ----------
    config : Config

    Members
    -------
    order : In(stream(bag_read(config)))
    settled : In(1)
        `shape` holds for every row to come.
    shape : In(row_setting)
    read_rows : In(stream(arrived_copy(config))).array(config.row_ports)
    read_words : In(stream(source_word(config))).array(config.row_ports)
        Of each port, as of `RowReader`.
    rows : Out(stream(pooled_row(config)))
    words : Out(stream(config.bus_width))
        As of `BagSums`.
    ends : Out(stream(bag_end(config)))
        Of every bag: the first error of its reads, or OK.

    Timing
    ------
    Latency 4 cycles from a row that has been read to its words. One word a cycle, those of a row
    that begins in a higher lane of its bus word one more.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "order": In(stream.Signature(bag_read(config))),
            "settled": In(1),
            "shape": In(row_setting),
            "read_rows": In(stream.Signature(arrived_copy(config))).array(config.row_ports),
            "read_words": In(stream.Signature(source_word(config))).array(config.row_ports),
            "rows": Out(stream.Signature(pooled_row(config))),
            "words": Out(stream.Signature(config.bus_width)),
            "ends": Out(stream.Signature(bag_end(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config, read = self.config, bag_read(self.config)
        m.submodules.opened = opened = Skid(read.size)
        m.submodules.realigner = realigner = Realigner(config)
        m.submodules.queue = queue = RamFifo(pooled_row(config), ROWS_AHEAD)
        connect(m, queue=queue.o, rows=flipped(self.rows))

        def of_port(streams, number, field):
            """That field of the stream of a port."""
            width = len(field(streams[0]))
            return reduce(or_, (field(one) & (number == at).replicate(width)
                                for at, one in enumerate(streams)))

        # The next row opens once its port has it. Its words come from the next cycle on.
        head, open_ = self.order.p, data.View(read, opened.i.p)
        fault, here = Signal(2), Signal()
        m.d.comb += [
            fault.eq(of_port(self.read_rows, head.port, lambda one: one.p.fault)),
            here.eq(self.settled & (
                ~head.reads | of_port(self.read_rows, head.port, lambda one: one.valid))),
            opened.i.valid.eq(self.order.valid & here),
            self.order.ready.eq(here & opened.i.ready),
            open_.eq(head),
        ]
        for number, one in enumerate(self.read_rows):
            m.d.comb += one.ready.eq(self.order.valid & head.reads & (head.port == number)
                                     & self.settled & opened.i.ready)
        with m.If(head.reads & (fault != 0)):
            m.d.comb += [open_.reads.eq(0), open_.status.eq(Status.SLVERR - 1 + fault)]

        # Its words.
        row, word = data.View(read, opened.o.p), realigner.words
        inside, filled = Signal(), Signal(word_count_width(config))
        last_filled = Signal.like(filled)
        opens, step, final, free = Signal(), Signal(), Signal(), Signal()
        real = Signal(source_word(config))
        m.d.sync += last_filled.eq(
            (self.shape.row16 - 1) >> log2(config.bus_bytes // ROW_ALIGNMENT))
        m.d.comb += [
            real.eq(of_port(self.read_words, row.port, lambda one: one.p.as_value())),
            free.eq(inside | queue.i.ready & self.ends.ready),
            word.valid.eq(opened.o.valid & ~row.empty & free & (
                ~row.reads | of_port(self.read_words, row.port, lambda one: one.valid))),
            step.eq(Mux(row.empty, opened.o.valid & free, word.valid & word.ready)),
            opens.eq(step & ~inside),
            final.eq(row.empty | word.p.last),
            opened.o.ready.eq(step & final),
            word.p.eq(real),
            queue.i.valid.eq(opens),
            queue.i.p.weight.eq(row.weight),
            queue.i.p.last.eq(row.last),
            queue.i.p.empty.eq(row.empty),
        ]
        with m.If(~row.reads):  # words of anything
            m.d.comb += [
                word.p.placement.eq(0),
                word.p.placement.end.eq(config.lanes - 1),
                word.p.first.eq(~inside),
                word.p.last.eq(filled == last_filled),
            ]
        for number, one in enumerate(self.read_words):
            m.d.comb += one.ready.eq(opened.o.valid & row.reads & (row.port == number) & free
                                     & word.ready)
        with m.If(step):
            m.d.sync += [inside.eq(~final), filled.eq(Mux(final, 0, filled + 1))]
        m.d.comb += [
            self.words.valid.eq(realigner.aligned.valid),
            self.words.p.eq(realigner.aligned.p.data),
            realigner.aligned.ready.eq(self.words.ready),
        ]

        # The first error of its reads is what becomes of a bag, else that of its slot.
        begun, failed, first_index = Signal(), Signal(), Signal(32)
        held, end = Signal(bag_end(config)), self.ends.p
        m.d.comb += [
            self.ends.valid.eq(opens & row.last),
            end.drops.eq(row.drops | (row.status != Status.OK) | (row.slot_status != Status.OK)),
            end.status.eq(row.status),
            end.index.eq(row.index),
            end.address.eq(row.address),
            end.destination.eq(row.destination),
            end.two_writes.eq(row.two_writes),
            end.packed.eq(row.packed),
        ]
        with m.If(failed):
            m.d.comb += end.eq(held)
        with m.Elif(row.status == Status.OK):
            m.d.comb += [
                end.status.eq(Mux(row.drops, Status.OK, row.slot_status)),
                end.index.eq(Mux(begun, first_index, row.index)),
                end.address.eq(row.packed),
            ]
        with m.If(opens):
            m.d.sync += [
                begun.eq(~row.last),
                failed.eq(~row.last & (failed | (row.status != Status.OK))),
            ]
            with m.If(~begun):
                m.d.sync += first_index.eq(row.index)
            with m.If(~failed):
                m.d.sync += [
                    held.drops.eq(1),
                    held.status.eq(row.status),
                    held.index.eq(row.index),
                    held.address.eq(row.address),
                ]
        return m
