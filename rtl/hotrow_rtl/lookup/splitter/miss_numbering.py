"""Miss numbering: numbers the missed rows of a split batch and lists them."""

from functools import reduce
from operator import and_

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.lookup_payloads import (
    DirectoryOp,
    bank_answer,
    crossbar_request,
    crossbar_response,
    lane_results,
    slot_number,
    waiting_beat,
)
from ...interfaces.records import row_entry, row_key
from ...primitives.bits import prefix_popcount
from .miss_number_bank import number_lane, number_shared


def waiting_lookup(config: Config) -> data.StructLayout:
    """A lane of `waiting_beat`."""
    return waiting_beat(config)["lanes"].shape.elem_shape


def split_lookup(config: Config) -> data.StructLayout:
    """A lookup with the answer of its bank.

    `missed`: the lookup is an owner without a slot in a batch that `splits`. `number` is the slot
    of any other owner, and the number of a miss that is `listed`: its row is this element of the
    list of misses. The number of a miss that is not listed is in its entry of the miss table.
    `kept`: the row has such an entry. With a planner, `absent`: the owner had no slot before its
    request.
    """
    return data.StructLayout({
        **{name: field.shape for name, field in waiting_lookup(config) if name != "key"},
        **({"absent": 1} if config.planner else {}),
        "counted": 1,
        "missed": 1,
        "listed": 1,
        "kept": 1,
        "number": config.slot_word_width,
    })


def split_beat(config: Config) -> data.StructLayout:
    """The split lookups of one cycle; the other fields as in `waiting_beat`."""
    return data.StructLayout({
        "lanes": data.ArrayLayout(split_lookup(config), config.lanes),
        "counts": 1,
        "splits": 1,
        "last": 1,
    })


def planned_beat(config: Config) -> data.StructLayout:
    """The rows of a planned batch of one cycle, a flag per lane.

    `fetched`: the row must be fetched, to the slot `numbers`, or without a slot if `bypassed`.
    `evicts`: the row with the tag `tags` lost the slot and must be written back. `first`: no row of
    the batch came to the slot before.
    """
    return data.StructLayout({
        "numbers": data.ArrayLayout(config.slot_word_width, config.lanes),
        "tags": data.ArrayLayout(config.directory_tag_width, config.lanes),
        **dict.fromkeys(("fetched", "bypassed", "evicts", "first"), config.lanes),
        "last": 1,
    })


class MissNumbering(wiring.Component):
    """Number the missed rows of each batch in the order of lookups.

    An owner whose row is not yet in the miss table gets the next number and stores it at its entry,
    if the table kept the row. Later owners of the row read the number there.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    answered : In(stream(crossbar_response(config, waiting_beat(config), bank_answer(config))))
    beats : Out(stream(crossbar_request(config, split_beat(config), number_lane(config),
            number_shared(config))))
        One per beat. A miss whose row the table kept requests the bank that responded: it writes
        its number if it is `listed`, else it reads it.
    listed : Out(stream(lane_results(config, row_entry)))
        One per beat of a batch that splits: the rows of its listed lookups. The sink may accept it
        before or after the beat, but before the next beat.
    op : In(DirectoryOp)
        With a planner: the operation of a batch that splits, as in `BankRequestStage`, stable from
        the cycle before its first beat on. PLAN also lists the rows that got a slot, MARK lists
        none.
    begin : In(1)
        With a planner: a pulse before a planned batch. Its first miss has the number
        `config.slots`.
    planned : Out(stream(planned_beat(config)))
        With a planner: one per beat of a planned batch, accepted like `listed`.
    restart : In(1)
        A pulse drops the beats inside and resets the numbers.

    Timing
    ------
    Latency `latency` cycles, one beat a cycle.
    """

    latency = 2  # count within the beat, add

    def __init__(self, config: Config):
        self.config = config
        planner = {"op": In(DirectoryOp), "begin": In(1),
                   "planned": Out(stream.Signature(planned_beat(config)))}
        super().__init__({
            "answered": In(stream.Signature(crossbar_response(
                config, waiting_beat(config), bank_answer(config)))),
            "beats": Out(stream.Signature(crossbar_request(
                config, split_beat(config), number_lane(config), number_shared(config)))),
            "listed": Out(stream.Signature(lane_results(config, row_entry))),
            **(planner if config.planner else {}),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, out, listed = self.config, self.beats.p, self.listed.p
        pending, answers = self.answered.p.carried, self.answered.p.answers
        enable, valid = Signal(), Signal()
        sinks = [self.beats, self.listed, *([self.planned] if c.planner else [])]
        m.d.comb += [
            enable.eq(reduce(and_, (~sink.valid | sink.ready for sink in sinks))),
            self.answered.ready.eq(enable),
        ]

        # First stage: the misses, and how many rows lower lanes of the beat list.
        misses = [pending.splits & lane.owner & ~answer.found.placed
                  for lane, answer in zip(pending.lanes, answers, strict=True)]
        numbered = misses  # those with an answer of the miss table
        if c.planner:
            plans, marks = Signal(), Signal()  # Timing: `op` is set long before the first beat
            m.d.sync += [plans.eq(self.op == DirectoryOp.PLAN),
                         marks.eq(self.op == DirectoryOp.MARK)]
            numbered = [miss & ~marks for miss in misses]
        lists = Signal(c.lanes)
        m.d.comb += lists.eq(Cat(miss & ~answer.missed.repeated
                                 for miss, answer in zip(numbered, answers, strict=True)))
        listed_before, all_listed = prefix_popcount(m, lists)
        list_count = Signal(range(c.lanes + 1), reset_less=True)
        flags = Cat(pending.counts, pending.splits, pending.last)
        flags_q = Signal(len(flags), name="flags_q", reset_less=True)
        with m.If(enable):
            m.d.sync += [
                valid.eq(self.answered.valid),
                flags_q.eq(flags),
                list_count.eq(all_listed),
            ]
        splits, last = flags_q[-2], flags_q[-1]

        # Second stage: the numbers.
        count = Signal(c.slot_word_width)  # rows of the batch listed so far
        for sink in sinks:
            with m.If(sink.ready):
                m.d.sync += sink.valid.eq(0)
        with m.If(enable):
            m.d.sync += [
                self.beats.valid.eq(valid),
                self.listed.valid.eq(valid & splits),
                Cat(out.carried.counts, out.carried.splits, out.carried.last).eq(flags_q),
                out.shared.count.eq(count),
            ]
            with m.If(valid):
                m.d.sync += count.eq(Mux(last, 0, count + list_count))
        if c.planner:
            with m.If(enable):
                m.d.sync += [
                    self.listed.valid.eq(valid & splits & ~marks),
                    self.planned.valid.eq(valid & plans),
                ]
            with m.If(self.begin):
                m.d.sync += count.eq(c.slots)
            m.d.comb += self.planned.p.last.eq(out.carried.last)
        m.d.comb += listed.last.eq(out.carried.last)

        for number, (lane, answer, split) in enumerate(
                zip(pending.lanes, answers, out.carried.lanes, strict=True)):
            bank, place = self.answered.p.banks[number], answer.missed.place
            copied = [name for name, _ in waiting_lookup(c) if name != "key"]
            fields = Cat(*(lane[name] for name in copied), answer.counted, misses[number],
                         lists[number], answer.missed.kept)
            slot = slot_number(c, bank, answer.found.slot)
            before = Signal(log2(c.lanes), name=f"before{number}")
            m.d.comb += before.eq(listed_before[number])
            request = Cat(
                numbered[number] & answer.missed.kept, bank, lists[number], place, before)
            fields_q, request_q = (Signal(len(bits), name=f"{name}{number}", reset_less=True)
                                   for name, bits in (("fields", fields), ("request", request)))
            # `number` is `count` + `base` of a miss, `base` of any other lookup.
            key_q, base = (Signal(width, name=f"{name}{number}", reset_less=True)
                           for name, width in (("key", c.key_width), ("base", len(slot))))
            key = Signal(c.key_width, name=f"listed_key{number}", reset_less=True)
            is_miss = Signal(name=f"is_miss{number}", reset_less=True)
            into = out.lanes[number]
            with m.If(enable):
                m.d.sync += [
                    fields_q.eq(fields),
                    request_q.eq(request),
                    key_q.eq(lane.key),
                    key.eq(key_q),
                    base.eq(Mux(misses[number], before, slot)),
                    is_miss.eq(misses[number]),
                    Cat(*(split[name] for name in copied), split.counted, split.missed,
                        split.listed, split.kept).eq(fields_q),
                    split.number.eq(Mux(is_miss, count, 0) + base),
                    Cat(into.valid, into.bank, into.request.write,
                        into.request.place, into.request.before).eq(request_q),
                ]
            m.d.comb += [
                listed.values[number].row.eq(row_key(c)(key).row),
                listed.values[number].table.eq(row_key(c)(key).table),
                listed.present[number].eq(split.listed),
            ]
            if c.planner:
                owned = pending.splits & lane.owner
                absent = owned & ~answer.found.hit
                self._plan(m, enable, number, split, Cat(
                    absent, owned & answer.found.placed & answer.first,
                    absent & plans & answer.found.placed, owned & plans & answer.evicts,
                    answer.tag))
        with m.If(self.restart):
            m.d.sync += [
                valid.eq(0), count.eq(0), *(sink.valid.eq(0) for sink in sinks)]
        return m

    def _plan(self, m, enable, number, split, answer):
        """Delay the planner's part of an answer with its lane, and form the lane of `planned`."""
        planned = self.planned.p
        answer_q = Signal(len(answer), name=f"planned{number}", reset_less=True)
        first, fills, evicts = (Signal(name=f"{name}{number}", reset_less=True)
                                for name in ("first", "fills", "evicts"))
        tag = Signal(len(planned.tags[number]), name=f"tag{number}", reset_less=True)
        with m.If(enable):
            m.d.sync += [
                answer_q.eq(answer),
                Cat(split.absent, first, fills, evicts, tag).eq(answer_q),
            ]
        m.d.comb += [
            planned.numbers[number].eq(split.number),
            planned.tags[number].eq(tag),
            planned.first[number].eq(first),
            planned.evicts[number].eq(evicts),
            planned.bypassed[number].eq(split.listed),
            planned.fetched[number].eq(split.listed | fills),
            self.listed.p.present[number].eq(split.listed | fills),
        ]
