"""PCI Express: tags are not reused early, nothing passes an answered write, streams hold."""

import pytest
from amaranth import Elaboratable, Module, Signal
from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib.wiring import connect
from hotrow_rtl.memory.axi import DECERR, OKAY, AXI4Read, AXI4Write
from hotrow_rtl.pcie.bridge import PacketArbiter
from hotrow_rtl.pcie.layouts import TAG_BITS, TAGS, Type, common_header
from hotrow_rtl.pcie.read_issuer import ReadIssuer
from hotrow_rtl.pcie.read_return import ReadReturn
from hotrow_rtl.pcie.tag_pool import TagPool
from hotrow_rtl.pcie.write_sender import WriteSender

from tests.formal.axi_rules import holds
from tests.formal.prover import (
    after_reset,
    any_constant,
    free_inputs,
    keeps,
    mutated,
    opened,
    verify,
)

BUS = {"address_width": 40, "bus_bytes": 8, "id_width": 2}
READS, WRITES = [AXI4Read(**BUS)] * 2, [AXI4Write(**BUS)] * 2
TAG_COUNT = 4
ORDER_DEPTH = 9  # cycles after reset: two writes and a completion


class Tags(Elaboratable):
    """A tag is given out only if its reader has released it, and its last completion has come or
    three periods of the time-out have passed; a reader gets `done` only then, or after one."""

    def __init__(self, pool=TagPool):
        self.pool = pool(TAG_COUNT)

    def elaborate(self, platform):
        m = Module()
        m.submodules.pool = pool = self.pool
        free_inputs(m, pool, pool.timeout)
        any_constant(m, pool.timeout)
        own, who = opened(pool), any_constant(m, Signal(TAG_BITS))
        mine, reads, owed, ticks = Signal(), Signal(), Signal(), Signal(2)
        completed, released = Signal(), Signal()
        m.d.comb += [
            mine.eq(pool.tags.valid & pool.tags.ready & (pool.tags.p == who)),
            completed.eq(pool.completed & (pool.completed_tag == who)),
            released.eq(pool.released & (pool.released_tag == who)),
            Assume(who < TAG_COUNT),
            Assume((pool.completed_tag < TAG_COUNT) & (pool.released_tag < TAG_COUNT)),
            Assume(~completed | pool.in_flight.bit_select(who, 1)),
            Assume(~released | pool.done.bit_select(who, 1)),
        ]
        # `owed`: completions may come; `ticks`: periods that ended since the request.
        with m.If(own.tick & owed):
            m.d.sync += ticks.eq(ticks + (ticks != 3))
        with m.If(completed | own.tick & (ticks == 3)):
            m.d.sync += owed.eq(0)
        with m.If(released):
            m.d.sync += reads.eq(0)
        with m.If(mine):
            m.d.sync += [owed.eq(1), reads.eq(1), ticks.eq(0)]
        done = pool.done.bit_select(who, 1)
        m.d.comb += [
            Assert(~mine | ~owed & ~reads),
            Assert(~done | reads & (~owed | (ticks >= 2))),
            Assert(~owed | pool.in_flight.bit_select(who, 1)),
            Cover(mine & (ticks == 3)),
            # Invariants.
            Assert(~owed | (ticks >= 2) | reads),
            Assert(~owed | (pool.late.bit_select(who, 1) == (ticks >= 2))),
            Assert(own.held.bit_select(who, 1) == reads),
            Assert(pool.in_flight.bit_select(who, 1) == owed),
            Assert(~(pool.tags.valid & (pool.tags.p == who)) | ~owed & ~reads),
        ]
        for tag, age in enumerate(own.ages):
            with m.If((who == tag) & owed):
                m.d.comb += [Assert(age == ticks)]
        return m


class Order(Elaboratable):
    """A completion or read that is offered after an answer leaves later than the answered write.

    Every segment ends a burst, so answers and write packets are counted.
    """

    def __init__(self, sender=WriteSender, arbiter=PacketArbiter):
        self.sender, self.arbiter = sender(WRITES), arbiter(8 * BUS["bus_bytes"], 2)

    def elaborate(self, platform):
        m = Module()
        m.submodules.sender = sender = self.sender
        m.submodules.arbiter = arbiter = self.arbiter
        writes, others = arbiter.packets
        connect(m, sender=sender.packets, arbiter=writes)
        free_inputs(m, sender, sender.packets.ready, sender.master)
        given, out = sender.segments, arbiter.out
        for stream in (given, sender.words, others):
            keeps(m, stream)
        m.d.comb += [
            Assume(~given.p.empty & given.p.ends & (given.p.dwords != 0) & (given.p.dwords < 4)),
            Assume(given.p.master < len(WRITES)),
            sender.master.eq(1),
            out.ready.eq(AnySeq(1)),
            others.valid.eq(AnySeq(1)),
            others.p.as_value().eq(AnySeq(len(others.p.as_value()))),
        ]
        # The first beat of a packet says of which kind it is.
        offers, leaves = Signal(init=1), Signal(init=1)  # the next beat is a packet's first
        kind, known = Signal(), Signal()
        header = common_header(others.p.data[:32])
        m.d.comb += [
            Assume(~(others.valid & offers) | (header.type == Type.COMPLETION)),
            kind.eq(common_header(out.p.data[:32]).type == Type.COMPLETION),
        ]
        answers, landed = Signal(4), Signal(4)
        answered = [getattr(sender, f"bus_{idx}") for idx in range(len(WRITES))]
        starts = others.valid & offers
        begun, before = Signal(), Signal()
        follows, ahead, needed = Signal(), Signal(4), Signal(4)
        offered = Signal(4)  # packets of the other source that have not left
        accepted = others.valid & others.ready
        left = out.valid & out.ready
        m.d.sync += [before.eq(starts & ~accepted),
                     answers.eq(answers + sum(bus.bvalid & bus.bready for bus in answered))]
        with m.If(accepted):
            m.d.sync += offers.eq(others.p.last)
        with m.If(left):
            m.d.sync += [leaves.eq(out.p.last)]
            with m.If(leaves):
                m.d.sync += known.eq(kind)
        is_other = Signal()
        m.d.comb += is_other.eq(kind)
        with m.If(~leaves):
            m.d.comb += is_other.eq(known)
        ends = left & out.p.last
        m.d.sync += [landed.eq(landed + (ends & ~is_other)),
                     offered.eq(offered + (accepted & others.p.last) - (ends & is_other))]
        with m.If(~follows & starts & ~before & AnySeq(1)):
            m.d.sync += [follows.eq(1), ahead.eq(offered - (ends & is_other)),
                         needed.eq(answers + sum(bus.bvalid for bus in answered))]
        with m.Elif(follows & (ahead != 0)):
            m.d.sync += ahead.eq(ahead - (ends & is_other))
        with m.Elif(follows & left & leaves & kind):
            m.d.sync += begun.eq(1)
            m.d.comb += [Assert(begun | (landed >= needed)), Cover(~begun & (needed == 1))]
        # Once per burst, and not before its packet has been accepted.
        sent = Signal(4)
        with m.If(writes.valid & writes.ready & writes.p.last):
            m.d.sync += sent.eq(sent + 1)
        shown = sum(bus.bvalid for bus in answered)
        # One more answer waits while one is shown.
        m.d.comb += [Assert(((sent - answers - shown)[:4]) <= (shown != 0)), Assert(shown <= 1)]
        return m


class Answers(Elaboratable):
    """The data and answer channels hold until `ready`, and so do packets of a bus master."""

    def __init__(self, returns=ReadReturn, sender=WriteSender, issuer=ReadIssuer):
        self.returns, self.sender, self.issuer = returns(READS), sender(WRITES), issuer(READS)

    def elaborate(self, platform):
        m = Module()
        m.submodules.data = returns = self.returns
        m.submodules.sender = sender = self.sender
        m.submodules.issuer = issuer = self.issuer
        free_inputs(m, returns)
        free_inputs(m, sender, sender.master)
        free_inputs(m, issuer, issuer.master)
        for stream in (returns.order, sender.segments, sender.words, issuer.chunks, issuer.tags):
            keeps(m, stream)
        m.d.comb += [
            sender.master.eq(1), issuer.master.eq(1),
            Assume(sender.segments.p.master < len(WRITES)),
            Assume(returns.order.p.chunk.master < len(READS)),
            Assume(sender.segments.p.empty | (sender.segments.p.dwords != 0)),
            Assume(sender.segments.p.dwords < 4),
        ]
        # The words and flags of a tag stay until it is released.
        before = [Signal.like(value) for value in (
            returns.read_data, returns.done, returns.late, returns.causes)]
        kept, released = Signal(), Signal(TAGS)
        m.d.comb += released.eq(returns.released << returns.released_tag)
        released_q = Signal(TAGS)
        m.d.sync += [kept.eq(~returns.read_enable), released_q.eq(released)]
        for value, old in zip((returns.read_data, returns.done, returns.late, returns.causes),
                              before, strict=True):
            m.d.sync += old.eq(value)
        m.d.comb += [
            Assume(~kept | (returns.read_data == before[0])),
            Assume(after_reset(m) | ((before[1] & ~returns.done) & ~released_q == 0)),
        ]
        for idx in range(len(READS)):
            bus = getattr(returns, f"bus_{idx}")
            holds(m, bus.rvalid, bus.rready, [bus.rid, bus.rdata, bus.rresp, bus.rlast])
            answers = getattr(sender, f"bus_{idx}")
            holds(m, answers.bvalid, answers.bready, [answers.bid, answers.bresp])
        for packets in (sender.packets, issuer.packets):
            holds(m, packets.valid, packets.ready, [packets.p.data, packets.p.keep, packets.p.last])
        return m


class Mastering(Elaboratable):
    """A packet begins only with bus master enable, and an answer is OKAY if all of its burst left,
    else DECERR. Every segment ends a burst."""

    def __init__(self, sender=WriteSender, issuer=ReadIssuer):
        self.sender, self.issuer = sender(WRITES), issuer(READS)

    def elaborate(self, platform):
        m = Module()
        m.submodules.sender = sender = self.sender
        m.submodules.issuer = issuer = self.issuer
        free_inputs(m, sender)
        free_inputs(m, issuer)
        for stream in (sender.segments, sender.words, issuer.chunks, issuer.tags):
            keeps(m, stream)
        given = sender.segments.p
        m.d.comb += [Assume(~given.empty & given.ends & (given.dwords != 0) & (given.dwords < 4)),
                     Assume(given.master < len(WRITES))]
        for unit in (sender, issuer):
            packets, first = unit.packets, Signal(init=1)
            with m.If(packets.valid & packets.ready):
                m.d.sync += first.eq(packets.p.last)
            m.d.comb += Assert(~packets.valid | ~first | unit.master)
        answers = [getattr(sender, f"bus_{idx}") for idx in range(len(WRITES))]
        shown = sum(bus.bvalid & (bus.bresp == OKAY) for bus in answers)
        refused = sum(bus.bvalid & (bus.bresp == DECERR) for bus in answers)
        sent, answered, taken, others = Signal(4), Signal(4), Signal(4), Signal(4)
        with m.If(sender.packets.valid & sender.packets.ready & sender.packets.p.last):
            m.d.sync += sent.eq(sent + 1)
        with m.If(sender.segments.valid & sender.segments.ready):
            m.d.sync += taken.eq(taken + 1)
        m.d.sync += [
            answered.eq(answered + sum(bus.bvalid & bus.bready & (bus.bresp == OKAY)
                                       for bus in answers)),
            others.eq(others + sum(bus.bvalid & bus.bready & (bus.bresp == DECERR)
                                   for bus in answers))]
        # One more answer, of either kind, waits while one is shown.
        visible = sum(bus.bvalid for bus in answers)
        hidden, waiting = (sent - answered - shown)[:4], (taken - sent - others - refused)[:4]
        m.d.comb += [Assert(hidden <= (visible != 0)), Assert(waiting <= 1 + (visible != 0)),
                     Assert(visible == shown + refused)]
        # A tag is issued once, and its request leaves or is refused.
        issued, left = Signal(4), Signal(4)
        gone = issuer.packets.valid & issuer.packets.ready & issuer.packets.p.last
        refuses = issuer.refused.valid & issuer.refused.ready
        m.d.sync += [issued.eq(issued + issuer.issued.valid), left.eq(left + (gone | refuses))]
        m.d.comb += [Assert((issued - left)[:4] <= 1), Assert(~gone | ~refuses),
                     Cover((others == 1) & (sent == 1) & (left == 2))]
        return m


TAG_BUGS = {
    "completion ignored by the reader": ("free.eq(~self.in_flight & ~held)", "free.eq(~held)"),
    "held data overwritten": ("free.eq(~self.in_flight & ~held)", "free.eq(~self.in_flight)"),
    "a late tag is free at once": ("with m.If(age == 3):", "with m.If(age == 1):"),
    "done before the data": ("self.in_flight[tag].eq(1),", "self.in_flight[tag].eq(1), age.eq(1),"),
}
ORDER_BUGS = {
    "answered when its packet starts": {"sender": (
        "answers.i.valid.eq(done & job.ends)", "answers.i.valid.eq(given.valid & given.ready)")},
    "answer overwritten": {"sender": ("(~final | free)", "1")},
    "packets mixed": {"arbiter": ("begun.eq(~skid.i.p.last)", "begun.eq(0)")},
}
ANSWER_BUGS = {
    "words of a stalled master": {"returns": (
        "m.d.comb += step.eq(~valid | ready)", "m.d.comb += step.eq(1)")},
    "response of the next chunk": {"returns": ("port.rresp.eq(shown)", "port.rresp.eq(response)")},
    "header replaced": {"issuer": (
        "accept.eq(self.chunks.valid & self.tags.valid & self.order.ready & ~waiting)",
        "accept.eq(self.chunks.valid & self.tags.valid & self.order.ready)")},
}
MASTER_BUGS = {
    "a write begins": {"sender": ("out.valid.eq(offered & ~refuses)", "out.valid.eq(offered)")},
    "the rest of a refused write leaves": {"sender": (
        "Mux(first, ~self.master, refusing)", "first & ~self.master")},
    "a refused write is OKAY": {"sender": ("Mux(refused | refuses, DECERR, OKAY)", "OKAY")},
    "a read begins": {"issuer": ("waiting & (second | self.master)", "waiting")},
}
CLASSES = {"sender": WriteSender, "arbiter": PacketArbiter, "returns": ReadReturn,
           "issuer": ReadIssuer}


def planted(bug):
    return {part: mutated(CLASSES[part], *change) for part, change in bug.items()}


def test_tags(tmp_path):
    assert verify(Tags(), tmp_path, depth=3) == "PASS"


@pytest.mark.parametrize("bug", TAG_BUGS)
def test_tags_bug(bug, tmp_path):
    assert verify(Tags(mutated(TagPool, *TAG_BUGS[bug])), tmp_path, mode="bmc", depth=12) == "FAIL"


def test_order(tmp_path):
    assert verify(Order(), tmp_path, mode="bmc", depth=ORDER_DEPTH, timeout=900) == "PASS"


@pytest.mark.parametrize("bug", ORDER_BUGS)
def test_order_bug(bug, tmp_path):
    proof = Order(**planted(ORDER_BUGS[bug]))
    assert verify(proof, tmp_path, mode="bmc", depth=ORDER_DEPTH, timeout=900) == "FAIL"


def test_answers(tmp_path):
    assert verify(Answers(), tmp_path, mode="bmc", depth=8, timeout=900) == "PASS"


@pytest.mark.parametrize("bug", ANSWER_BUGS)
def test_answers_bug(bug, tmp_path):
    proof = Answers(**planted(ANSWER_BUGS[bug]))
    assert verify(proof, tmp_path, mode="bmc", depth=8, timeout=900) == "FAIL"


def test_mastering(tmp_path):
    assert verify(Mastering(), tmp_path, mode="bmc", depth=7) == "PASS"


@pytest.mark.parametrize("bug", MASTER_BUGS)
def test_mastering_bug(bug, tmp_path):
    proof = Mastering(**planted(MASTER_BUGS[bug]))
    assert verify(proof, tmp_path, mode="bmc", depth=7) == "FAIL"


def test_what_is_reached(tmp_path):
    assert verify(Order(), tmp_path, mode="cover", depth=16, timeout=900) == "PASS"
