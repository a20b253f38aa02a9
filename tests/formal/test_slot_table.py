"""Slots: a slot that a batch needs is never reassigned, for any requests, marks and retirements.

The proof tracks one arbitrary slot, and derives from the responses whether a batch that is not
retired needs it, by PLAN or by MARK; the content of the memory is proved to agree. It assumes that
batches stay within the window (test_plan_window proves it) and that requests of one set keep their
distance (`LookupBank` enforces it). The proof is unbounded with one choice of sets, and bounded
with two, which only a hash connects.
"""

from dataclasses import replace
from itertools import combinations

import pytest
from amaranth import Array, Cat, Elaboratable, Module, Mux, Signal
from amaranth.hdl import Assert, Assume, Cover
from hotrow_rtl.interfaces.lookup_payloads import DirectoryOp, slot_in_bank
from hotrow_rtl.lookup.directory.payloads import slot_way
from hotrow_rtl.lookup.directory.slot_table import SlotTable, latency

from tests.formal.prover import any_constant, free_inputs, mutated, opened, row_of, verify
from tests.formal.small import SMALL

TWO = replace(SMALL, planner=True, directory_sets=16, directory_partitions=1, stamp_bits=4)
ONE = replace(TWO, directory_choices=1)


class Holds(Elaboratable):
    """One slot of a bank, and its row."""

    def __init__(self, config=ONE, bank=SlotTable):
        self.config, self.bank = config, bank(config)

    def elaborate(self, platform):
        m, config = Module(), self.config
        m.submodules.bank = bank = self.bank
        free_inputs(m, bank)
        setting, answer = bank.setting, bank.answer
        slot = any_constant(m, Signal(slot_in_bank(config), name="slot").as_value())
        slot = slot_in_bank(config)(slot)

        # Requests in the pipeline by age; bit 0 entered in the previous cycle.
        ages = max(bank.latency, bank.distance - 1)
        inside, asks, places = Signal(ages), [], []
        place = bank.request.choices.as_value()
        ask, last = bank.request.op, place
        for age in range(ages):
            asks.append(Signal(DirectoryOp, name=f"ask{age}"))
            places.append(Signal(len(place), name=f"places{age}"))
            m.d.sync += [asks[-1].eq(ask), places[-1].eq(last)]
            ask, last = asks[-1], places[-1]
        m.d.sync += inside.eq(Cat(bank.valid, inside))
        with m.If(bank.restart):
            m.d.sync += inside.eq(0)
        busy = inside[:bank.latency].any()

        # Assumptions on the requests.
        before, known = Signal.like(setting), Signal()
        m.d.sync += [before.eq(setting), known.eq(1)]
        changes = known & (setting.as_value() != before.as_value())
        stamp = config.stamp_bits
        ahead = (setting.batch - setting.retired)[:stamp]
        needs = (bank.request.op == DirectoryOp.PLAN) | (bank.request.op == DirectoryOp.MARK)
        m.d.comb += [
            Assume(slot.choice < config.directory_choices),
            Assume(~changes | bank.ready & ~busy),
            Assume(~known | (setting.retired == before.retired)
                   | (setting.retired == (before.retired + 1)[:stamp])),
            Assume(~bank.valid | bank.ready & ~bank.sweep & ~bank.clear),
            Assume(~(bank.sweep | bank.clear) | bank.ready & ~busy),
            Assume(~(bank.sweep & bank.clear)),
            Assume(~(bank.valid & needs) | (ahead != 0) & (ahead <= config.sweep_batches)),
        ]
        for age in range(bank.distance - 1):
            other = Signal(bank.request.choices.shape(), name=f"other{age}")
            shared = Cat(here.set == there.set for here, there in zip(
                bank.request.choices, other, strict=True)).any()
            m.d.comb += [
                other.as_value().eq(places[age]),
                Assume(~(bank.valid & inside[age] & shared)
                       | (bank.request.op == DirectoryOp.FIND) & (asks[age] == DirectoryOp.FIND)),
            ]

        # The tracked slot.
        holds, needed, tag = Signal(), Signal(stamp), Signal(config.directory_tag_width)
        held = holds & (needed != setting.retired)
        answered = inside[bank.latency - 1] & ~bank.restart
        ask = asks[bank.latency - 1]
        asked = Signal(bank.request.choices.shape())
        m.d.comb += asked.as_value().eq(places[bank.latency - 1])
        here = answered & answer.placed & (answer.slot.as_value() == slot.as_value())
        own_tag = Array(each.tag for each in asked)[slot.choice]
        keeps = held & answer.hit & ~(needed - setting.batch)[stamp - 1]
        m.d.sync += holds.eq(held)
        with m.If(here & ((ask == DirectoryOp.PLAN) | (ask == DirectoryOp.MARK))):
            m.d.sync += [holds.eq(1), tag.eq(own_tag),
                         needed.eq(Mux(keeps, needed, setting.batch))]
        with m.If(bank.clear | here & (
                (ask == DirectoryOp.REMOVE) | (ask == DirectoryOp.INSTALL) & ~answer.hit)):
            m.d.sync += holds.eq(0)
        m.d.comb += [
            Assert(~(here & ~answer.hit & held)),
            Assert(~(here & held) | (own_tag == tag)),
            Assert(~(answered & answer.evicts) | answer.placed & ~answer.hit),
            Cover(here & answer.evicts & answer.dirty),
            Cover(answered & (ask == DirectoryOp.PLAN) & ~answer.placed & held),
            Cover(here & keeps & (ask == DirectoryOp.PLAN) & (needed != setting.batch)),
        ]

        # Invariant: the memory agrees.
        own, words = opened(bank), []
        for ram in own.rams:
            word, wired = row_of(opened(ram).ram, slot.set)
            m.d.comb += wired
            words.append(word)
        word = Array(each.data for each in words)[slot.choice]
        way = slot_way(config)(word.word_select(slot.way, slot_way(config).size))
        # A stamp that no sweep has renewed may hold the slot longer, never shorter.
        needs_ahead, kept_ahead = ((each - setting.retired)[:stamp]
                                   for each in (needed, way.state.last_needed))
        m.d.comb += [
            Assert(inside[:bank.latency - 1] == own.valid),
            Assert(~held | way.valid & (way.tag == tag)),
            Assert(~held | (needs_ahead <= kept_ahead) & ~kept_ahead[stamp - 1]),
            Assert(~held | (needs_ahead <= config.sweep_batches)),
        ]
        for word in words:
            ways = [slot_way(config)(word.data.word_select(number, slot_way(config).size))
                    for number in range(config.directory_ways)]
            m.d.comb += [Assert(~(one.valid & other.valid & (one.tag == other.tag)))
                         for one, other in combinations(ways, 2)]
        return m


BUGS = {
    "held one batch too short": ("ahead[-1] & ahead.any()", "ahead[-1] & (ahead > 1)"),
    "a plan forgets a mark": (
        "hit & self._is_after(state.last_needed), state.last_needed, setting.batch",
        "0, state.last_needed, setting.batch"),
    "a sweep forgets holds": (
        "self._is_held(way.state.last_needed), way.state.last_needed, setting.retired",
        "0, way.state.last_needed, setting.retired"),
    "a mark that is not written": ("hit & (plans | marks |", "hit & (plans |"),
}


def test_no_held_slot_is_given_away(tmp_path):
    assert verify(Holds(), tmp_path, depth=latency(ONE) + 9, timeout=1500) == "PASS"


def test_no_held_slot_of_two_choices_is_given_away_within_14_cycles(tmp_path):
    assert verify(Holds(TWO), tmp_path, mode="bmc", depth=14, timeout=1500) == "PASS"


def test_victims_bypasses_and_marks_are_reached(tmp_path):
    assert verify(Holds(), tmp_path, mode="cover", depth=40, timeout=1500) == "PASS"


@pytest.mark.parametrize("bug", BUGS)
def test_bug(bug, tmp_path):
    bank = mutated(SlotTable, *BUGS[bug])
    assert verify(Holds(bank=bank), tmp_path, mode="bmc", depth=40, timeout=1500) == "FAIL"
