"""BagReadCollect: the words that the row ports read, merged in the order of the reads."""

from amaranth import Array, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...arithmetic.payloads import bag_row, row_format
from ...config import ROW_ALIGNMENT, Config, log2
from ...contract.encoding import Status
from ...primitives.fifo import RamFifo
from ..port.byte_aligner import ByteAligner
from ..port.payloads import fetched_row, source_word, word_count_width
from .payloads import ReadKind, bag_read, bag_result, bag_setting, read_buffer

READS_AHEAD = 16  # reads announced before their words


class BagReadCollect(wiring.Component):
    """Collect the words of every read in order, align them to the first byte of a word, and decide
    on each bag.

    A row that is not read, or has a fault, is replaced by as many words of undefined data; its bag
    is not written.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    reads : In(stream(bag_read(config)))
    setting : In(bag_setting())
    formats_valid : In(1)
        `summand_format` and `row_format` are valid for all reads that follow, see `BagReadIssue`.
    summand_format, row_format : In(row_format)
    read_rows : In(stream(fetched_row(config))).array(config.row_ports)
    read_words : In(stream(source_word(config))).array(config.row_ports)
        Of each port, see `RowReader`.
    rows : Out(stream(bag_row))
    words : Out(stream(config.bus_width))
        Summands for `BagSum`.
    row_words : Out(stream(config.bus_width))
    states : Out(stream(32))
        Rows and states of an UPDATE.
    results : Out(stream(bag_result(config)))
        Of every bag, with the first error of its reads, or OK. For an UPDATE refusals precede
        faults.

    Timing
    ------
    Latency 3 cycles from `read_rows` to the words, 4 if the first is joined from two bus words. One
    word per cycle; one cycle more for a row that neither begins at the first lane nor fits in its
    bus word, and one more for every read where the arithmetic of a word takes two cycles.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "reads": In(stream.Signature(bag_read(config))),
            "setting": In(bag_setting()),
            "formats_valid": In(1),
            "summand_format": In(row_format),
            "row_format": In(row_format),
            "read_rows": In(stream.Signature(fetched_row(config))).array(config.row_ports),
            "read_words": In(stream.Signature(source_word(config))).array(config.row_ports),
            "rows": Out(stream.Signature(bag_row)),
            "words": Out(stream.Signature(config.bus_width)),
            "row_words": Out(stream.Signature(config.bus_width)),
            "states": Out(stream.Signature(32)),
            "results": Out(stream.Signature(bag_result(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        length = data.StructLayout({
            "kind": ReadKind, "len_minus_1": word_count_width(config)})
        m.submodules.skid = skid = read_buffer(config, data.StructLayout({
            "read": bag_read(config), "fault": 2}))
        m.submodules.aligner = aligner = ByteAligner(config)
        m.submodules.queue = queue = RamFifo(bag_row, READS_AHEAD)
        m.submodules.lengths = lengths = RamFifo(length, READS_AHEAD)
        connect(m, queue=queue.o, rows=flipped(self.rows))

        # The next read waits for its row at its port. Its words follow in the next cycle.
        head, arrived = self.reads.p, Signal()
        m.d.comb += [
            skid.i.valid.eq(self.reads.valid & arrived),
            self.reads.ready.eq(arrived & skid.i.ready),
            skid.i.p.read.eq(head),
        ]
        with m.If(~head.from_memory):
            m.d.comb += arrived.eq(self.formats_valid)
        with m.Else(), m.Switch(head.port):
            for number, one in enumerate(self.read_rows):
                with m.Case(number):
                    m.d.comb += [
                        arrived.eq(self.formats_valid & one.valid),
                        skid.i.p.fault.eq(one.p.fault),
                        one.ready.eq(self.reads.valid & self.formats_valid & skid.i.ready),
                    ]

        # The words of the read: from its port, or undefined.
        read, fault, word = skid.o.p.read, skid.o.p.fault, aligner.words
        inside, word_idx, read_length = Signal(), Signal(word_count_width(config)), Signal(length)
        len_minus_1 = {kind: Signal(word_count_width(config), name=f"len_minus_1_{kind.name}")
                       for kind in ReadKind}
        begin, step, final, permit = Signal(), Signal(), Signal(), Signal()
        # The result of a bag's row precedes that of its state.
        row_result, row_result_sent = Signal(), Signal()
        from_port, word_valid = Signal(), Signal()
        for kind, format_ in ((ReadKind.SUMMAND, self.summand_format),
                              (ReadKind.ROW, self.row_format)):
            m.d.sync += len_minus_1[kind].eq(
                ((format_.row16 << log2(ROW_ALIGNMENT)) - 1) >> log2(config.bus_bytes))
        m.d.comb += [
            from_port.eq(read.from_memory & (fault == 0)),
            read_length.kind.eq(read.kind),
            read_length.len_minus_1.eq(Array(len_minus_1.values())[read.kind.as_value()]),
            row_result.eq(
                skid.o.valid & read.last & (read.kind == ReadKind.STATE) & ~row_result_sent),
            permit.eq(
                inside | queue.i.ready & lengths.i.ready & self.results.ready & ~row_result),
            word.valid.eq(skid.o.valid & ~read.empty & permit & word_valid),
            step.eq(Mux(read.empty, skid.o.valid & permit, word.valid & word.ready)),
            begin.eq(step & ~inside),
            final.eq(read.empty | word.p.last),
            skid.o.ready.eq(step & final),
            queue.i.valid.eq(begin & (read.kind == ReadKind.SUMMAND)),
            queue.i.p.weight.eq(read.weight),
            queue.i.p.last.eq(read.last_summand),
            queue.i.p.empty.eq(read.empty),
            lengths.i.valid.eq(begin & ~read.empty),
            lengths.i.p.eq(read_length),
        ]
        with m.Switch(read.port):
            for number, one in enumerate(self.read_words):
                with m.Case(number):
                    m.d.comb += [
                        word_valid.eq(~from_port | one.valid),
                        word.p.eq(one.p),
                        one.ready.eq(skid.o.valid & from_port & permit & word.ready),
                    ]
        with m.If(~from_port):
            m.d.comb += [
                word.p.alignment.eq(0),
                word.p.alignment.last_lane.eq(config.word_lanes - 1),
                word.p.first.eq(~inside),
                word.p.last.eq(word_idx == read_length.len_minus_1),
            ]
        with m.If(step):
            m.d.sync += [inside.eq(~final), word_idx.eq(Mux(final, 0, word_idx + 1))]

        # The aligned words to their consumers.
        aligned, out_idx, fire = aligner.aligned, Signal(word_count_width(config)), Signal()
        for kind, out in ((ReadKind.SUMMAND, self.words), (ReadKind.ROW, self.row_words),
                          (ReadKind.STATE, self.states)):
            m.d.comb += [
                out.valid.eq(aligned.valid & lengths.o.valid & (lengths.o.p.kind == kind)),
                out.p.eq(aligned.p.data),
            ]
            with m.If(lengths.o.valid & (lengths.o.p.kind == kind)):
                m.d.comb += aligned.ready.eq(out.ready)
        m.d.comb += [
            fire.eq(aligned.valid & aligned.ready),
            lengths.o.ready.eq(fire & (out_idx == lengths.o.p.len_minus_1)),
        ]
        with m.If(fire):
            m.d.sync += out_idx.eq(Mux(lengths.o.ready, 0, out_idx + 1))

        self._result(m, read, fault, begin, row_result, row_result_sent)
        return m

    def _result(self, m, read, fault, begin, row_result, row_result_sent):
        """The first error of the bag's reads, else that of its slot."""
        config, status, result = self.config, Signal(8), self.results.p
        begun, failed, by_fault, first_index = Signal(), Signal(), Signal(), Signal(32)
        held_error, row_held = Signal(bag_result(config)), Signal(bag_result(config))
        # For an UPDATE a refusal replaces the fault of an earlier read.
        replaces = self.setting.updates & by_fault & (read.status != Status.OK)
        m.d.comb += [
            status.eq(Mux((read.status == Status.OK) & (fault != 0),
                          Status.SLVERR - 1 + fault, read.status)),
            self.results.valid.eq(begin & read.last | row_result),
            result.drop.eq(failed | read.drop | (status != Status.OK)
                           | (read.slot_status != Status.OK)),
            result.last.eq(~row_result),
            result.is_state.eq(~row_result & (read.kind == ReadKind.STATE)),
            result.status.eq(status),
            result.index.eq(read.index),
            result.address.eq(read.address),
            result.destination.eq(read.destination),
            result.two_writes.eq(read.two_writes),
            result.packed_destination.eq(read.packed_destination),
        ]
        with m.If(failed & ~replaces):
            m.d.comb += [result[name].eq(held_error[name])
                         for name in ("status", "index", "address")]
        with m.Elif(status == Status.OK):
            m.d.comb += [
                result.status.eq(Mux(read.drop, Status.OK, read.slot_status)),
                result.index.eq(Mux(begun, first_index, read.index)),
                result.address.eq(read.packed_destination),
            ]
        with m.If(row_result):
            m.d.comb += [result[name].eq(row_held[name])
                         for name in ("destination", "two_writes", "packed_destination")]
            with m.If(self.results.ready):
                m.d.sync += row_result_sent.eq(1)
        with m.If(begin):
            m.d.sync += [
                row_result_sent.eq(0),
                begun.eq(~read.last),
                failed.eq(~read.last & (failed | (status != Status.OK))),
            ]
            with m.If(~begun):
                m.d.sync += first_index.eq(read.index)
            with m.If(read.kind == ReadKind.ROW):
                m.d.sync += row_held.eq(result)
            with m.If(~failed | replaces):
                m.d.sync += [
                    held_error.status.eq(status),
                    held_error.index.eq(read.index),
                    held_error.address.eq(read.address),
                    by_fault.eq(read.status == Status.OK),
                ]
