"""Several bag units: no summand and no returning word is lost, repeated or sent to another unit.

A lane of the list of summands is proved for all time, with bags of any length. The reads of two
units at one port are followed from reset, until the queues of both have been full.
"""

from dataclasses import replace

import pytest
from amaranth import Array, Elaboratable, Module, Mux, Signal
from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import data
from hotrow_rtl.mover.bags.list_dispatch import SummandLane
from hotrow_rtl.mover.bags.payloads import return_words
from hotrow_rtl.mover.bags.read_network import ReadCredits, ReadReturn

from tests.formal.prover import after_reset, free_inputs, keeps, mutated, opened, verify
from tests.formal.small import SMALL

CONFIG = replace(SMALL, arithmetic=1, row_ports=2, bag_units=2)
PLACE_WIDTH = 20  # bits of a list's positions in the proof: more than those of `segment`
DEPTH = 13  # cycles after reset, in which the reads of a unit fill its queue


def few_bits(config):
    """Replaces `source_word`: what the proof looks at."""
    return data.StructLayout({"data": 4, "first": 1, "last": 1})


class Summands(Elaboratable):
    """`SummandLane`: summand i of the list goes to the unit of the bag that contains i, once."""

    def __init__(self, lane):
        self.lane = lane

    def elaborate(self, platform):
        m = Module()
        m.submodules.lane = lane = self.lane
        new, start = lane.segments, after_reset(m)
        free_inputs(m, lane, lane.lane, lane.start)
        keeps(m, new)
        # A summand of the lane; where the bags of the current segment, and those that it keeps,
        # begin and end; where the lane's next summand is.
        number, (place, begins, mid, end, kept, next_place) = Signal(), (
            Signal(PLACE_WIDTH, name=name)
            for name in ("place", "begins", "mid", "end", "kept", "next_place"))
        new_mid, new_end, new_kept = (Signal(PLACE_WIDTH + 1, name=name)
                                      for name in ("new_mid", "new_end", "new_kept"))
        owner, known, last, contains, keep = Signal(), Signal(), Signal(), Signal(), Signal(2)
        takes, sent = Signal(), Signal()
        own = opened(lane)
        bits = len(own.place)
        m.d.comb += [
            number.eq(AnyConst(1)),
            place.eq(AnyConst(PLACE_WIDTH)),
            Assume((place[0] == number) & ~place[-1]),
            lane.lane.eq(number),
            lane.start.eq(start),
            new_mid.eq(end + AnySeq(16)),
            new_end.eq(new_mid + AnySeq(16)),
            new_kept.eq(Mux(new.p.keep[1], new_end, Mux(new.p.keep[0], new_mid, end))),
            Assume((new.p.ends[0] == new_mid[:bits]) & (new.p.ends[1] == new_end[:bits])),
            Assume(new.p.keep != 2),
            Assume(new.p.drop | (new.p.keep == 3)),
            Assume(~new.valid | ~last & (new_end < 1 << PLACE_WIDTH - 1)),
            contains.eq((end <= place) & (place < new_kept)),
            takes.eq(new.valid & new.ready & ~start),
            sent.eq((lane.unit_valid & lane.unit_ready).any() & ~start),
            Assert(lane.ready == (sent | start & lane.ready | own.drops)),
            Assert((lane.unit_valid & (lane.unit_valid - 1)) == 0),
            Assert(~sent | lane.valid),
            Cover(sent & (next_place == place) & (begins > 2) & ~takes),
            Cover(sent & takes & (new_mid == end) & (end > 4)),
            Cover(own.drops & (kept < end) & (kept > begins)),
        ]
        with m.If(takes):
            m.d.sync += [begins.eq(end), mid.eq(new_mid), end.eq(new_end), kept.eq(new_kept),
                         keep.eq(new.p.keep), last.eq(new.p.drop)]
            with m.If(contains):
                m.d.sync += [owner.eq(place >= new_mid), known.eq(1)]
        with m.If(sent):
            m.d.sync += next_place.eq(next_place + 2)
        with m.If(start):
            m.d.sync += [begins.eq(0), mid.eq(0), end.eq(0), kept.eq(0), keep.eq(3),
                         last.eq(0), next_place.eq(number), known.eq(0)]
        with m.If(sent & (next_place == place)):
            m.d.comb += [
                Assert(known | takes & contains),
                Assert(lane.unit_valid == 1 << Mux(known, owner, place >= new_mid)),
            ]
        with m.If(own.drops & ~start):
            m.d.comb += Assert(~known | (place < next_place))  # every summand of a bag was sent
        with m.If(~start):
            m.d.comb += [  # invariants
                Assert((own.place == next_place[:bits])
                       & (own.following == (next_place + 2)[:bits])),
                Assert((begins <= mid) & (mid <= end) & (begins <= kept) & (kept <= end)),
                Assert((keep == 3) | last & (keep != 2)),
                Assert(kept == Mux(keep[1], end, Mux(keep[0], mid, begins))),
                Assert((end - begins < 1 << 17) & (end - mid < 1 << 16) & (mid - begins < 1 << 16)),
                Assert(~end[-1] & (next_place[0] == number) & (next_place < kept + 2)),
                Assert(next_place >= Mux(own.loads, kept, begins)),
                Assert(own.loads | (next_place < end)),
                Assert(own.drops == (own.loads & last)),
                Assert(known == (place < kept)),
                Assert(~known | (place < begins) | (owner == (place >= mid))),
            ]
            with m.If(~own.loads):
                m.d.comb += Assert(
                    (own.held.ends[0] == mid[:bits]) & (own.held.ends[1] == end[:bits])
                    & (own.held.drop == last) & (own.held.keep == keep))
        return m


class Reads(Elaboratable):
    """`ReadCredits` of two units and `ReadReturn` of a port, which returns what it reads."""

    def __init__(self, *bug, sender=ReadCredits):
        self.credits = [sender(CONFIG) for _ in range(2)]
        self.back = mutated(ReadReturn, *bug, source_word=few_bits)(CONFIG)

    def elaborate(self, platform):
        m = Module()
        m.submodules.back = back = self.back
        own, turn = opened(back), Signal()
        free_inputs(m, back, back.sent.valid, back.sent.p, back.rows.valid, back.words.valid,
                    back.words.p, back.rows.p)
        m.d.comb += [turn.eq(AnySeq(1)), back.sent.p.eq(self.credits[0].sent.p)]
        for number, sender in enumerate(self.credits):
            m.submodules[f"credits_{number}"] = sender
            free_inputs(m, sender, sender.unit, sender.sent.ready, *sender.freed,
                        sender.transfers[1].valid)
            read, mine = sender.transfers[0], turn == number
            m.d.comb += [
                sender.unit.eq(number),
                sender.freed[0].eq(back.freed[number]),
                sender.sent.ready.eq(back.sent.ready & mine),
                Assume(~read.valid | (read.p.info.bytes != 0)
                       & (read.p.info.bytes <= CONFIG.row_bytes)),
            ]
            with m.If(mine):
                m.d.comb += [back.sent.valid.eq(sender.sent.valid), back.sent.p.eq(sender.sent.p)]

        # The port returns each row once its turn comes, then its words without a gap.
        owner, unit = own.owners.o.p, Signal()
        words_left, fault = Signal(range(return_words(CONFIG) + 1)), Signal(2)
        sequence = [Signal(4, name=f"sequence{number}") for number in range(2)]
        m.d.comb += [
            back.rows.valid.eq(AnySeq(1) & own.owners.o.valid & (words_left <= 1)),
            fault.eq(AnySeq(2)),
            back.rows.p.fault.eq(fault),
            back.words.valid.eq(words_left != 0),
            back.words.p.data.eq(Array(sequence)[unit]),
            back.words.p.first.eq(unit),
            back.words.p.last.eq(words_left == 1),
            Cover(own.owners.o.valid & (back.unit_words[0].valid & back.unit_words[1].valid)),
        ]
        with m.If(back.rows.valid & back.rows.ready):
            m.d.sync += [words_left.eq(Mux(fault == 0, owner.words, 0)), unit.eq(owner.unit)]
        with m.Elif(words_left != 0):
            m.d.sync += words_left.eq(words_left - 1)
        for number in range(2):
            out, expected = back.unit_words[number], Signal(4, name=f"expected{number}")
            row, owed = back.unit_rows[number], Signal(4, name=f"owed{number}")
            comes = row.valid & row.ready & (row.p.fault == 0)
            leaves = out.valid & out.ready
            m.d.comb += Assume(~leaves | (owed != 0))  # a unit takes a row before its words
            m.d.sync += owed.eq(owed + comes - (leaves & out.p.last))
            with m.If(back.words.valid & (unit == number)):
                m.d.sync += sequence[number].eq(sequence[number] + 1)
            with m.If(out.valid):
                m.d.comb += [Assert(out.p.data == expected), Assert(out.p.first == number)]
                with m.If(out.ready):
                    m.d.sync += expected.eq(expected + 1)
        for queue in (own.rows, own.words):  # of the last unit: what comes has space
            m.d.comb += Assert(~queue.i.valid | queue.i.ready)
        return m


BUGS = {
    "a bag loses a summand": lambda: Summands(mutated(
        SummandLane, "following.eq(following + lanes)", "following.eq(following + lanes + 1)")(
            CONFIG)),
    "a segment begins before the last has ended": lambda: Summands(mutated(
        SummandLane, "~_before(following,", "~_before(following + 1,")(CONFIG)),
    "a summand for the next unit": lambda: Summands(mutated(
        SummandLane, "return (place - end)", "return (place + 1 - end)")(CONFIG)),
    "positions without their highest bit": lambda: Summands(mutated(
        SummandLane, "[len(end) - 1]", "[len(end) - 2]")(CONFIG)),
    "summands that follow the last bag": lambda: Summands(mutated(
        SummandLane, " & current.keep)", ")")(CONFIG)),
    "no segment drops the rest": lambda: Summands(mutated(
        SummandLane, "drops.eq(ends & current.drop)", "drops.eq(0)")(CONFIG)),
    "a read without credit": lambda: Reads(sender=mutated(
        ReadCredits, "credit >= info.words", "credit != 0")),
    "words freed twice": lambda: Reads("(rows.o.p.fault != 0)", "1"),
    "words to the unit of the next row": lambda: Reads(
        "words.i.valid.eq(self.words.valid & (unit == number))",
        "words.i.valid.eq(self.words.valid & (owner.unit == number))"),
}


def test_summands(tmp_path):
    assert verify(Summands(SummandLane(CONFIG)), tmp_path, depth=3) == "PASS"


def test_summands_reach(tmp_path):
    assert verify(Summands(SummandLane(CONFIG)), tmp_path, mode="cover", depth=8) == "PASS"


def test_reads(tmp_path):
    assert verify(Reads(), tmp_path, mode="bmc", depth=DEPTH) == "PASS"


def test_reads_reach(tmp_path):
    assert verify(Reads(), tmp_path, mode="cover", depth=DEPTH) == "PASS"


@pytest.mark.parametrize("bug", BUGS)
def test_bug(bug, tmp_path):
    assert verify(BUGS[bug](), tmp_path, mode="bmc", depth=DEPTH) == "FAIL"
