"""Lookups of a SPLIT: told apart by the directory's answers, and written as slot words."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config, log2
from .contract import MISS_FLAG, NO_SLOT, Status
from .directory import STATUS_WIDTH, directory_answer
from .layouts import result, row_entry, row_key
from .miss_list import numbered_miss


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
