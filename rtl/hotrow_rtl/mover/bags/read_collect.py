"""Bag words: what row ports read, each in its own order, as one stream in the order of the list."""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...arithmetic.payloads import bag_row, row_format
from ...config import ROW_ALIGNMENT, Config, log2
from ...contract.encoding import Status
from ...primitives.fifo import RamFifo
from ...primitives.skid_buffer import SkidBuffer
from ..port.byte_aligner import ByteAligner
from ..port.payloads import arrived_copy, source_word, word_count_width
from .payloads import ReadKind, bag_end, bag_read, bag_setting

READS_AHEAD = 16  # that are told before their words


class BagReadCollect(wiring.Component):
    """Take what was read from the ports in order, give the words of each from a first byte on, and
    tell what becomes of each bag.

    In place of a row that is not read, or not without a fault, come as many words of anything: what
    is computed of them is not written.

    Parameters
    ----------
    config : Config

    Members
    -------
    order : In(stream(bag_read(config)))
    setting : In(bag_setting())
    settled : In(1)
        `summands` and `shape`, as of `BagReadIssue`, hold for every read to come.
    summands, shape : In(row_format)
    read_rows : In(stream(arrived_copy(config))).array(config.row_ports)
    read_words : In(stream(source_word(config))).array(config.row_ports)
        Of each port, as of `RowReader`.
    rows : Out(stream(bag_row))
    words : Out(stream(config.bus_width))
        Summands, as of `BagSum`.
    row_words : Out(stream(config.bus_width))
    states : Out(stream(32))
        Rows that are updated, and their states.
    ends : Out(stream(bag_end(config)))
        Of every bag: the first error of its reads, those that were refused before faults if it is
        updated, or OK.

    Timing
    ------
    Latency 4 cycles from a row that has been read to its words. One word a cycle, those of a row
    that begins in a higher lane of its bus word one more.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "order": In(stream.Signature(bag_read(config))),
            "setting": In(bag_setting()),
            "settled": In(1),
            "summands": In(row_format),
            "shape": In(row_format),
            "read_rows": In(stream.Signature(arrived_copy(config))).array(config.row_ports),
            "read_words": In(stream.Signature(source_word(config))).array(config.row_ports),
            "rows": Out(stream.Signature(bag_row)),
            "words": Out(stream.Signature(config.bus_width)),
            "row_words": Out(stream.Signature(config.bus_width)),
            "states": Out(stream.Signature(32)),
            "ends": Out(stream.Signature(bag_end(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config, read = self.config, bag_read(self.config)
        counted = data.StructLayout({"kind": ReadKind, "less": word_count_width(config)})
        m.submodules.opened = opened = SkidBuffer(data.StructLayout({"read": read, "fault": 2}).size)
        m.submodules.realigner = realigner = ByteAligner(config)
        m.submodules.queue = queue = RamFifo(bag_row, READS_AHEAD)
        m.submodules.kinds = kinds = RamFifo(counted, READS_AHEAD)
        connect(m, queue=queue.o, rows=flipped(self.rows))

        # The next read opens once its port has it. Its words come from the next cycle on.
        head, fault, here, arrived = self.order.p, Signal(2), Signal(), Signal(2)
        m.d.comb += [
            opened.i.valid.eq(self.order.valid & here),
            self.order.ready.eq(here & opened.i.ready),
            opened.i.p.eq(Cat(head.as_value(), arrived)),
        ]
        with m.If(~head.reads):
            m.d.comb += here.eq(self.settled)
        with m.Else(), m.Switch(head.port):
            for number, one in enumerate(self.read_rows):
                with m.Case(number):
                    m.d.comb += [
                        here.eq(self.settled & one.valid),
                        arrived.eq(one.p.fault),
                        one.ready.eq(self.order.valid & self.settled & opened.i.ready),
                    ]

        # Its words: those of its port, or any.
        row, word = data.View(read, opened.o.p[:read.size]), realigner.words
        inside, filled, less = Signal(), Signal(counted["less"].width), Signal(counted)
        least = {kind: Signal(less.less.shape(), name=f"words_{kind.name}") for kind in ReadKind}
        opens, step, final, free = Signal(), Signal(), Signal(), Signal()
        tells, told = Signal(), Signal()  # the end of the row before that of its state
        real, comes = Signal(), Signal()
        for kind, shape in ((ReadKind.SUMMAND, self.summands), (ReadKind.ROW, self.shape)):
            m.d.sync += least[kind].eq(
                (shape.row16 - 1) >> log2(config.bus_bytes // ROW_ALIGNMENT))
        m.d.comb += [
            fault.eq(opened.o.p[read.size:]),
            real.eq(row.reads & (fault == 0)),
            less.kind.eq(row.kind),
            less.less.eq(Array(least.values())[row.kind.as_value()]),
            tells.eq(opened.o.valid & row.last & (row.kind == ReadKind.STATE) & ~told),
            free.eq(inside | queue.i.ready & kinds.i.ready & self.ends.ready & ~tells),
            word.valid.eq(opened.o.valid & ~row.empty & free & comes),
            step.eq(Mux(row.empty, opened.o.valid & free, word.valid & word.ready)),
            opens.eq(step & ~inside),
            final.eq(row.empty | word.p.last),
            opened.o.ready.eq(step & final),
            queue.i.valid.eq(opens & (row.kind == ReadKind.SUMMAND)),
            queue.i.p.weight.eq(row.weight),
            queue.i.p.last.eq(row.closes),
            queue.i.p.empty.eq(row.empty),
            kinds.i.valid.eq(opens & ~row.empty),
            kinds.i.p.eq(less),
        ]
        with m.Switch(row.port):
            for number, one in enumerate(self.read_words):
                with m.Case(number):
                    m.d.comb += [
                        comes.eq(~real | one.valid),
                        word.p.eq(one.p),
                        one.ready.eq(opened.o.valid & real & free & word.ready),
                    ]
        with m.If(~real):
            m.d.comb += [
                word.p.placement.eq(0),
                word.p.placement.end.eq(config.lanes - 1),
                word.p.first.eq(~inside),
                word.p.last.eq(filled == less.less),
            ]
        with m.If(step):
            m.d.sync += [inside.eq(~final), filled.eq(Mux(final, 0, filled + 1))]

        # To whom they belong.
        aligned, whose, at = realigner.aligned, kinds.o, Signal(counted["less"].width)
        leaves = Signal()
        for kind, out in ((ReadKind.SUMMAND, self.words), (ReadKind.ROW, self.row_words),
                          (ReadKind.STATE, self.states)):
            m.d.comb += [
                out.valid.eq(aligned.valid & whose.valid & (whose.p.kind == kind)),
                out.p.eq(aligned.p.data),
            ]
            with m.If(whose.valid & (whose.p.kind == kind)):
                m.d.comb += aligned.ready.eq(out.ready)
        m.d.comb += [
            leaves.eq(aligned.valid & aligned.ready),
            whose.ready.eq(leaves & (at == whose.p.less)),
        ]
        with m.If(leaves):
            m.d.sync += at.eq(Mux(whose.ready, 0, at + 1))

        self._end(m, row, fault, opens, tells, told)
        return m

    def _end(self, m, row, fault, opens, tells, told):
        """The first error of its reads is what becomes of a bag, else that of its slot."""
        config, status, end = self.config, Signal(8), self.ends.p
        begun, failed, by_fault, first_index = Signal(), Signal(), Signal(), Signal(32)
        held, kept = Signal(bag_end(config)), Signal(bag_end(config))
        # One that was refused goes before faults of what is read for an update.
        worse = self.setting.updates & by_fault & (row.status != Status.OK)
        m.d.comb += [
            status.eq(Mux((row.status == Status.OK) & (fault != 0),
                          Status.SLVERR - 1 + fault, row.status)),
            self.ends.valid.eq(opens & row.last | tells),
            end.drops.eq(failed | row.drops | (status != Status.OK)
                         | (row.slot_status != Status.OK)),
            end.last.eq(~tells),
            end.is_state.eq(~tells & (row.kind == ReadKind.STATE)),
            end.status.eq(status),
            end.index.eq(row.index),
            end.address.eq(row.address),
            end.destination.eq(row.destination),
            end.two_writes.eq(row.two_writes),
            end.packed.eq(row.packed),
        ]
        with m.If(failed & ~worse):
            m.d.comb += [end[name].eq(held[name]) for name in ("status", "index", "address")]
        with m.Elif(status == Status.OK):
            m.d.comb += [
                end.status.eq(Mux(row.drops, Status.OK, row.slot_status)),
                end.index.eq(Mux(begun, first_index, row.index)),
                end.address.eq(row.packed),
            ]
        with m.If(tells):
            m.d.comb += [end[name].eq(kept[name])
                         for name in ("destination", "two_writes", "packed")]
            with m.If(self.ends.ready):
                m.d.sync += told.eq(1)
        with m.If(opens):
            m.d.sync += [
                told.eq(0),
                begun.eq(~row.last),
                failed.eq(~row.last & (failed | (status != Status.OK))),
            ]
            with m.If(~begun):
                m.d.sync += first_index.eq(row.index)
            with m.If(row.kind == ReadKind.ROW):
                m.d.sync += kept.eq(end)
            with m.If(~failed | worse):
                m.d.sync += [
                    held.status.eq(status),
                    held.index.eq(row.index),
                    held.address.eq(row.address),
                    by_fault.eq(row.status == Status.OK),
                ]
