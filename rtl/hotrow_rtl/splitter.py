"""The splitter: popular and other samples, slots and misses of a batch.

Source: the micro-batches of Hotline (ISCA 2024), section on mini-batch fragmentation; here as a
stable partition, so that a run can be repeated bit for bit.
"""

from amaranth import Module, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .config import Config, log2
from .directory import directory_answer
from .fifo import RamFifo
from .layouts import command, outcome, result, row_entry, row_key
from .miss_list import MissList, numbered_miss
from .sample_marks import SampleMarks
from .split_lookups import Classifier, SlotWords, ordered_slot

ORDER_DEPTH = 16  # lookups that may overtake the numbering of a miss
MISS_DEPTH = 8  # misses waiting for their number, and as many numbers waiting for their turn


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
        sequence = SplitSequence(self.config)
        classifier = Classifier(self.config)
        order = RamFifo(ordered_slot(self.config), ORDER_DEPTH)
        missed = RamFifo(row_key(self.config), MISS_DEPTH)
        numbered = RamFifo(numbered_miss(self.config), MISS_DEPTH)
        words = SlotWords(self.config)
        m.submodules.sequence = restarted(sequence)
        m.submodules.classifier = restarted(classifier)
        m.submodules.order = restarted(order)
        m.submodules.missed = restarted(missed)
        m.submodules.numbered = restarted(numbered)
        m.submodules.words = restarted(words)
        m.submodules.miss_list = miss_list = MissList(self.config)
        m.submodules.marks = marks = SampleMarks(self.config)

        connect(m, command=flipped(self.command), sequence=sequence.command)
        connect(m, sequence=sequence.scan, marks=marks.scan)
        connect(m, answers=flipped(self.answers), classifier=classifier.answers)
        connect(m, classifier=classifier.order, order=order.i)
        connect(m, order=order.o, words=words.order)
        connect(m, classifier=classifier.missed, missed=missed.i)
        connect(m, missed=missed.o, miss_list=miss_list.rows)
        connect(m, miss_list=miss_list.numbered, numbered=numbered.i)
        connect(m, numbered=numbered.o, words=words.numbered)
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
