"""Miss numbering: the position of each missed lookup in the list of missed rows of its batch."""

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
from .miss_number_bank import number_lane, number_shared


def asked_lookup(config: Config) -> data.StructLayout:
    """A lane of `waiting_beat`."""
    return waiting_beat(config)["lanes"].shape.elem_shape


def split_lookup(config: Config) -> data.StructLayout:
    """A lookup with the answer of its bank.

    `missed`: an owner without a slot in a batch that `splits`; otherwise `number` is the slot.
    `listed`: the row is element `number` of the list of missed rows. If a missed row is not
    `listed`, the miss table holds its number. `kept`: the miss table has an entry for the row. With
    a planner, `absent`: the owner had no slot when it reached the bank.
    """
    return data.StructLayout({
        **{name: field.shape for name, field in asked_lookup(config) if name != "key"},
        **({"absent": 1} if config.planner else {}),
        "counted": 1,
        "missed": 1,
        "listed": 1,
        "kept": 1,
        "number": config.slot_word_width,
    })


def planned_beat(config: Config) -> data.StructLayout:
    """Rows of a planned batch in one cycle, by lanes. `fetched`: the row is read into its slot or
    the bypass area, at its number; `bypassed`: it has no slot. `evicts`: a dirty victim, whose tag
    is in `tags`, is written back. `first`: the first lookup of this batch in that slot."""
    return data.StructLayout({
        "numbers": data.ArrayLayout(config.slot_word_width, config.lanes),
        "tags": data.ArrayLayout(config.directory_tag_width, config.lanes),
        **dict.fromkeys(("fetched", "bypassed", "evicts", "first"), config.lanes),
        "last": 1,
    })


def split_beat(config: Config) -> data.StructLayout:
    """The lookups of one cycle; the rest as in `waiting_beat`."""
    return data.StructLayout({
        "lanes": data.ArrayLayout(split_lookup(config), config.lanes),
        "counts": 1,
        "splits": 1,
        "last": 1,
    })


class MissNumbering(wiring.Component):
    """Number the missed rows of each batch in order of lookups.

    An owner whose row is not in the miss table gets the next number; if the table keeps the row,
    the number bank stores the number. Later owners of that row read it there.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    answered : In(stream(crossbar_response(config, waiting_beat(config), bank_answer(config))))
    beats : Out(stream(crossbar_request(config, split_beat(config), number_lane(config),
            number_shared(config))))
        One per beat. A request addresses the bank that answered: a missed owner that is kept writes
        its number if `listed`, otherwise it reads the number.
    listed : Out(stream(lane_results(config, row_entry)))
        One per beat of a batch that splits: the rows of its listed lookups. The sink accepts it
        before or after its beat, and before the next one.
    op : In(DirectoryOp)
        With a planner, like `begin` and `planned`: the operation of a batch that splits, see
        `BankRequestStage`. A PLAN also lists the rows that it fills; a MARK lists none.
    begin : In(1)
        A pulse before a batch that is planned: its first missed row has the number `config.slots`.
    planned : Out(stream(planned_beat(config)))
        One per beat of a batch that is planned, with the handshake of `listed`.
    restart : In(1)
        A pulse drops the beats inside and the batch in progress.

    Timing
    ------
    Latency `latency` cycles, one beat a cycle.
    """

    latency = 2  # count within the beat, add

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "answered": In(stream.Signature(crossbar_response(
                config, waiting_beat(config), bank_answer(config)))),
            "beats": Out(stream.Signature(crossbar_request(
                config, split_beat(config), number_lane(config), number_shared(config)))),
            "listed": Out(stream.Signature(lane_results(config, row_entry))),
            **({"op": In(DirectoryOp), "begin": In(1),
                "planned": Out(stream.Signature(planned_beat(config)))} if config.planner else {}),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, out, listed = self.config, self.beats.p, self.listed.p
        incoming, answers = self.answered.p.carried, self.answered.p.answers
        ready, valid = Signal(), Signal()
        sinks = [self.beats, self.listed, *([self.planned] if c.planner else [])]
        m.d.comb += [
            ready.eq(reduce(and_, (~sink.valid | sink.ready for sink in sinks))),
            self.answered.ready.eq(ready),
        ]

        # First step: which lanes miss, and how many rows of the beat are listed before each.
        missed = [incoming.splits & lane.owner & ~answer.found.placed
                  for lane, answer in zip(incoming.lanes, answers, strict=True)]
        numbered = missed  # lanes that the miss table answers
        if c.planner:
            plans, marks = (self.op == each for each in (DirectoryOp.PLAN, DirectoryOp.MARK))
            numbered = [each & ~marks for each in missed]
        adds = Signal(c.lanes)
        m.d.comb += adds.eq(Cat(miss & ~answer.missed.repeated
                                for miss, answer in zip(numbered, answers, strict=True)))
        total = Signal(range(c.lanes + 1), reset_less=True)
        flags = Cat(incoming.counts, incoming.splits, incoming.last)
        held = Signal(len(flags), name="held", reset_less=True)
        with m.If(ready):
            m.d.sync += [
                valid.eq(self.answered.valid),
                held.eq(flags),
                total.eq(sum(adds)),
            ]
        splits, last = held[-2], held[-1]

        # Second step: the numbers.
        count = Signal(c.slot_word_width)  # rows of the batch listed so far
        for sink in sinks:
            with m.If(sink.ready):
                m.d.sync += sink.valid.eq(0)
        with m.If(ready):
            m.d.sync += [
                self.beats.valid.eq(valid),
                self.listed.valid.eq(valid & splits),
                Cat(out.carried.counts, out.carried.splits, out.carried.last).eq(held),
                out.shared.count.eq(count),
            ]
            with m.If(valid):
                m.d.sync += count.eq(Mux(last, 0, count + total))
        if c.planner:
            with m.If(ready):
                m.d.sync += [
                    self.listed.valid.eq(valid & splits & ~marks),
                    self.planned.valid.eq(valid & plans),
                ]
            with m.If(self.begin):
                m.d.sync += count.eq(c.slots)
            m.d.comb += self.planned.p.last.eq(out.carried.last)
        m.d.comb += listed.last.eq(out.carried.last)

        for number, (lane, answer, to) in enumerate(
                zip(incoming.lanes, answers, out.carried.lanes, strict=True)):
            bank, place = self.answered.p.banks[number], answer.missed.place
            named = [name for name, _ in asked_lookup(c) if name != "key"]
            kept = Cat(*(lane[name] for name in named), answer.counted, missed[number],
                       adds[number], answer.missed.kept)
            slot = slot_number(c, bank, answer.found.slot)
            before = Signal(log2(c.lanes), name=f"before{number}")  # listed in lanes before
            m.d.comb += before.eq(sum(adds[:number]))
            asked = Cat(numbered[number] & answer.missed.kept, bank, adds[number], place, before)
            held_lane, held_asked = (Signal(len(bits), name=f"{name}{number}", reset_less=True)
                                     for name, bits in (("held", kept), ("asked", asked)))
            # The offset from the count for a missed row, or the slot.
            held_key, base = (Signal(width, name=f"{name}{number}", reset_less=True)
                              for name, width in (("key", c.key_width), ("base", len(slot))))
            key = Signal(c.key_width, name=f"listed_key{number}", reset_less=True)
            counts = Signal(name=f"counts{number}", reset_less=True)
            request = out.lanes[number]
            with m.If(ready):
                m.d.sync += [
                    held_lane.eq(kept),
                    held_asked.eq(asked),
                    held_key.eq(lane.key),
                    key.eq(held_key),
                    base.eq(Mux(missed[number], before, slot)),
                    counts.eq(missed[number]),
                    Cat(*(to[name] for name in named), to.counted, to.missed, to.listed,
                        to.kept).eq(held_lane),
                    to.number.eq(Mux(counts, count, 0) + base),
                    Cat(request.valid, request.bank, request.request.write,
                        request.request.place, request.request.before).eq(held_asked),
                ]
            m.d.comb += [
                listed.values[number].row.eq(row_key(c)(key).row),
                listed.values[number].table.eq(row_key(c)(key).table),
                listed.present[number].eq(to.listed),
            ]
            if c.planner:
                owned = incoming.splits & lane.owner
                absent = owned & ~answer.found.hit
                self._plan(m, ready, number, to, Cat(
                    absent, owned & answer.found.placed & answer.first,
                    absent & plans & answer.found.placed, owned & plans & answer.evicts,
                    answer.tag))
        with m.If(self.restart):
            m.d.sync += [
                valid.eq(0), count.eq(0), *(sink.valid.eq(0) for sink in sinks)]
        return m

    def _plan(self, m, ready, number, to, response):
        """Delay the planner's response of a lane by the latency of the lookup."""
        planned = self.planned.p
        held = Signal(len(response), name=f"planned{number}", reset_less=True)
        first, fills, evicts = (Signal(name=f"{name}{number}", reset_less=True)
                                for name in ("first", "fills", "evicts"))
        tag = Signal(len(planned.tags[number]), name=f"tag{number}", reset_less=True)
        with m.If(ready):
            m.d.sync += [held.eq(response), Cat(to.absent, first, fills, evicts, tag).eq(held)]
        m.d.comb += [
            planned.numbers[number].eq(to.number),
            planned.tags[number].eq(tag),
            planned.first[number].eq(first),
            planned.evicts[number].eq(evicts),
            planned.bypassed[number].eq(to.listed),
            planned.fetched[number].eq(to.listed | fills),
            self.listed.p.present[number].eq(to.listed | fills),
        ]
