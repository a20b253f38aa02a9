"""The splitter: popular and other samples, slots and misses of a batch.

Source: the micro-batches of Hotline (ISCA 2024), section on mini-batch fragmentation; here as a
stable partition, so that a run can be repeated bit for bit.
"""

from amaranth import Module, Mux, ResetInserter, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .config import Config, log2
from .contract import MISS_FLAG, NO_SLOT, Status
from .directory import STATUS_WIDTH, directory_answer
from .layouts import command, outcome, result, row_entry, row_key
from .miss_list import MissList, numbered_miss
from .sample_marks import SampleMarks

ORDER_DEPTH = 16  # lookups that may overtake the numbering of a miss
MISS_DEPTH = 8


def ordered_slot(config: Config) -> data.StructLayout:
    """What a lookup's slot word will be: `slot`, or that of the next miss, or that of a refusal."""
    return data.StructLayout({
        "present": 1, "missed": 1, "refused": 1, "slot": log2(config.slots), "last": 1})


class Classifier(wiring.Component):
    """Tell hits, misses and refused lookups apart, and count them.

    Members
    -------
    begin : In(1)
        A pulse clears the counts; answers are taken from then on, through the last one.
    answers : In(stream(directory_answer(config)))
    order : Out(stream(ordered_slot(config)))
        One per answer.
    missed : Out(stream(row_key(config)))
    mark : Out(1)
        `sample` has a lookup without a slot.
    sample : Out
    hits, misses : Out(32)
    status, refused_at : Out
        Why the first refused lookup was refused, and its position; status 0 when none was.
    done : Out(1)
        A pulse with the last answer.

    Timing
    ------
    Combinational, one answer a cycle.
    """

    def __init__(self, config: Config):
        super().__init__({
            "begin": In(1),
            "answers": In(stream.Signature(directory_answer(config))),
            "order": Out(stream.Signature(ordered_slot(config))),
            "missed": Out(stream.Signature(row_key(config))),
            "mark": Out(1),
            "sample": Out(log2(config.batch_samples)),
            "hits": Out(32),
            "misses": Out(32),
            "status": Out(STATUS_WIDTH),
            "refused_at": Out(32),
            "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        answer, query = self.answers.p, self.answers.p.query
        refused, missed, taken = Signal(), Signal(), Signal()
        active, offered, position = Signal(), Signal(), Signal(32)
        m.d.comb += [
            refused.eq(query.present & (query.status != Status.OK)),
            missed.eq(query.present & ~refused & ~answer.placed),
            # Each side is offered only what the other can take too, so that both move together.
            offered.eq(self.answers.valid & active),
            self.order.valid.eq(offered & (~missed | self.missed.ready)),
            self.missed.valid.eq(offered & missed & self.order.ready),
            taken.eq(self.order.valid & self.order.ready),
            self.answers.ready.eq(taken),
            self.order.p.present.eq(query.present),
            self.order.p.missed.eq(missed),
            self.order.p.refused.eq(refused),
            self.order.p.slot.eq(answer.slot),
            self.order.p.last.eq(query.last),
            self.missed.p.eq(query.key),
            self.mark.eq(taken & (missed | refused)),
            self.sample.eq(query.sample),
            self.done.eq(taken & query.last),
        ]
        with m.If(taken):
            m.d.sync += [
                position.eq(position + query.present),
                self.hits.eq(self.hits + (query.present & ~refused & answer.placed)),
                self.misses.eq(self.misses + missed),
            ]
            with m.If(refused & (self.status == Status.OK)):
                m.d.sync += [self.status.eq(query.status), self.refused_at.eq(position)]
        with m.If(self.done):
            m.d.sync += active.eq(0)
        with m.If(self.begin):
            m.d.sync += active.eq(1)
            m.d.sync += [signal.eq(0) for signal in (
                position, self.hits, self.misses, self.status, self.refused_at)]
        return m


class SlotWords(wiring.Component):
    """Join lookups with the numbers of their misses; write slot words and the miss list.

    Members
    -------
    order : In(stream(ordered_slot(config)))
    numbered : In(stream(numbered_miss(config)))
        One per missed lookup.
    slots : Out(stream(result(32)))
        One per element of `order`.
    misses : Out(stream(result(row_entry)))
        The listed misses; the last element may be absent.
    done : Out(1)
        A pulse with the last slot word.

    Timing
    ------
    Latency 1 cycle, one lookup a cycle.
    """

    def __init__(self, config: Config):
        super().__init__({
            "order": In(stream.Signature(ordered_slot(config))),
            "numbered": In(stream.Signature(numbered_miss(config))),
            "slots": Out(stream.Signature(result(32))),
            "misses": Out(stream.Signature(result(row_entry))),
            "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        head, number, slots, misses = self.order.p, self.numbered.p, self.slots, self.misses
        listed, lists, move = Signal(), Signal(), Signal()
        m.d.comb += [
            listed.eq(head.missed & number.listed),
            lists.eq(listed | head.last),
            move.eq(self.order.valid & (~head.missed | self.numbered.valid)
                    & (~slots.valid | slots.ready)
                    & (~lists | ~misses.valid | misses.ready)),
            self.order.ready.eq(move),
            self.numbered.ready.eq(move & head.missed),
            self.done.eq(move & head.last),
        ]
        with m.If(slots.ready):
            m.d.sync += slots.valid.eq(0)
        with m.If(misses.ready):
            m.d.sync += misses.valid.eq(0)
        with m.If(move):
            m.d.sync += [
                slots.valid.eq(1),
                slots.p.value.eq(Mux(head.missed, MISS_FLAG | number.index,
                                     Mux(head.refused, NO_SLOT, head.slot))),
                slots.p.present.eq(head.present),
                slots.p.last.eq(head.last),
            ]
            with m.If(lists):
                m.d.sync += [
                    misses.valid.eq(1),
                    misses.p.value.row.eq(number.key.row),
                    misses.p.value.table.eq(number.key.table),
                    misses.p.present.eq(listed),
                    misses.p.last.eq(head.last),
                ]
        return m


class SplitSequence(wiring.Component):
    """Begin a batch, start the scan after its last lookup, end when every list has ended.

    Members
    -------
    command : In(stream(command))
    cleared : In(1)
        The memories are ready for a batch.
    begin : Out(1)
        A pulse with the command.
    classified, written, parted : In(1)
        Pulses with the last lookup classified, the last slot word, the last sample parted.
    scan : Out(stream)
    ended : Out(stream)
        One per command, without payload.
    """

    def __init__(self, config: Config):
        self.samples_width = log2(config.batch_samples) + 1
        super().__init__({
            "command": In(stream.Signature(command)),
            "cleared": In(1),
            "begin": Out(1),
            "classified": In(1),
            "written": In(1),
            "parted": In(1),
            "scan": Out(stream.Signature(data.StructLayout({"samples": self.samples_width}))),
            "ended": Out(stream.Signature(1)),
        })

    def elaborate(self, platform):
        m = Module()
        busy, to_write, to_part = Signal(), Signal(), Signal()
        m.d.comb += [
            self.command.ready.eq(~busy & self.cleared),
            self.begin.eq(self.command.valid & self.command.ready),
            self.ended.valid.eq(busy & ~to_write & ~to_part),
        ]
        with m.If(self.begin):
            m.d.sync += [
                busy.eq(1),
                to_write.eq(1),
                to_part.eq(1),
                self.scan.p.samples.eq(self.command.p.samples),
            ]
        with m.If(self.classified):
            m.d.sync += self.scan.valid.eq(1)
        with m.Elif(self.scan.ready):
            m.d.sync += self.scan.valid.eq(0)
        with m.If(self.written):
            m.d.sync += to_write.eq(0)
        with m.If(self.parted):
            m.d.sync += to_part.eq(0)
        with m.If(self.ended.valid & self.ended.ready):
            m.d.sync += busy.eq(0)
        return m


class Splitter(wiring.Component):
    """Part a batch by the directory's answers.

    Members
    -------
    command : In(stream(command))
        A SPLIT, before its answers.
    answers : In(stream(directory_answer(config)))
        One per lookup, in order; the final one, with `last`, may carry no lookup.
    slots : Out(stream(result(32)))
        A word per lookup: its slot, or MISS_FLAG plus an index into `misses`, or NO_SLOT.
    misses : Out(stream(result(row_entry)))
    popular, nonpopular : Out(stream(result(32)))
        Positions of the samples whose lookups all hit, and of the others, in order.
    outcome : Out(stream(outcome))
        Once per batch, after the last element of every list: the counts, and the first refused
        lookup.
    restart : In(1)
        A pulse forgets the batch in progress.
    ready : Out(1)
        Low while memories are being cleared.

    Timing
    ------
    One lookup a cycle while misses are at most one in `MissList.cycles_per_miss`; a batch takes
    max(lookups, cycles_per_miss * misses + further probes) + samples + about 10 cycles.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "command": In(stream.Signature(command)),
            "answers": In(stream.Signature(directory_answer(config))),
            "slots": Out(stream.Signature(result(32))),
            "misses": Out(stream.Signature(result(row_entry))),
            "popular": Out(stream.Signature(result(32))),
            "nonpopular": Out(stream.Signature(result(32))),
            "outcome": Out(stream.Signature(outcome)),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        restarted = ResetInserter(self.restart)
        order_width, miss_width = ordered_slot(self.config).size, row_key(self.config).size
        sequence = SplitSequence(self.config)
        classifier = Classifier(self.config)
        order = fifo.SyncFIFOBuffered(width=order_width, depth=ORDER_DEPTH)
        missed = fifo.SyncFIFOBuffered(width=miss_width, depth=MISS_DEPTH)
        words = SlotWords(self.config)
        m.submodules.sequence = restarted(sequence)
        m.submodules.classifier = restarted(classifier)
        m.submodules.order = restarted(order)
        m.submodules.missed = restarted(missed)
        m.submodules.words = restarted(words)
        m.submodules.miss_list = miss_list = MissList(self.config)
        m.submodules.marks = marks = SampleMarks(self.config)

        connect(m, command=flipped(self.command), sequence=sequence.command)
        connect(m, sequence=sequence.scan, marks=marks.scan)
        connect(m, answers=flipped(self.answers), classifier=classifier.answers)
        for source, queue, sink in ((classifier.order, order, words.order),
                                    (classifier.missed, missed, miss_list.rows)):
            m.d.comb += [
                queue.w_en.eq(source.valid),
                queue.w_data.eq(source.p),
                source.ready.eq(queue.w_rdy),
                sink.valid.eq(queue.r_rdy),
                sink.p.eq(queue.r_data),
                queue.r_en.eq(sink.ready),
            ]
        connect(m, miss_list=miss_list.numbered, words=words.numbered)
        for producer, stream_out in ((words.slots, self.slots), (words.misses, self.misses),
                                     (marks.popular, self.popular),
                                     (marks.nonpopular, self.nonpopular)):
            connect(m, producer=producer, consumer=flipped(stream_out))
        m.d.comb += [
            miss_list.restart.eq(self.restart),
            marks.restart.eq(self.restart),
            self.ready.eq(miss_list.ready & marks.ready),
            sequence.cleared.eq(self.ready),
            sequence.classified.eq(classifier.done),
            sequence.written.eq(words.done),
            sequence.parted.eq(marks.done),
            classifier.begin.eq(sequence.begin),
            miss_list.begin.eq(sequence.begin),
            marks.mark.eq(classifier.mark),
            marks.sample.eq(classifier.sample),
            self.outcome.valid.eq(sequence.ended.valid),
            sequence.ended.ready.eq(self.outcome.ready),
            self.outcome.p.status.eq(classifier.status),
            self.outcome.p.error_index.eq(classifier.refused_at),
            self.outcome.p.lookups.eq(classifier.hits + classifier.misses),
            self.outcome.p.hits.eq(classifier.hits),
            self.outcome.p.misses.eq(classifier.misses),
            self.outcome.p.unique.eq(miss_list.count),
            self.outcome.p.popular.eq(marks.count),
        ]
        return m
