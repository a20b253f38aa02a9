"""Arbiters: RoundRobinArbiter grants one request and is fair; RegionArbiter routes verdicts."""

import pytest
from amaranth import Cat, Elaboratable, Module, Mux, Signal
from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cover
from hotrow_rtl.host.region_arbiter import RegionArbiter
from hotrow_rtl.primitives.round_robin_arbiter import RoundRobinArbiter

from tests.formal.prover import any_constant, free_inputs, keeps, mutated, opened, verify
from tests.formal.small import SMALL

SERVED_WITHIN = 11
ANSWER_WITHIN = 3  # cycles of the assumed region check


def ones(bits):
    return sum(bits[i] for i in range(len(bits)))


class RoundRobin(Elaboratable):
    """One grant, only to a request; a request waits for at most `count` - 1 other grants."""

    def __init__(self, arbiter):
        self.arbiter = arbiter

    def elaborate(self, platform):
        m = Module()
        m.submodules.arbiter = arbiter = self.arbiter
        free_inputs(m, arbiter)
        count = len(arbiter.requests)
        who = any_constant(m, Signal(range(count)))
        asks, granted = Signal(), Signal()
        passed_over, ahead = Signal(range(2 * count)), Signal(range(2 * count))
        m.d.comb += [
            Assume(who < count),
            asks.eq(arbiter.requests.bit_select(who, 1)),
            granted.eq(arbiter.grant.bit_select(who, 1)),
            Assert((arbiter.grant & (arbiter.grant - 1)) == 0),
            Assert((arbiter.grant & ~arbiter.requests) == 0),
            Assert(arbiter.grant.any() == arbiter.requests.any()),
            Assert(passed_over <= count - 1),
            Cover(passed_over == count - 1),
        ]
        with m.If(~asks | granted & arbiter.accept):
            m.d.sync += passed_over.eq(0)
        with m.Elif(arbiter.accept):
            m.d.sync += passed_over.eq(passed_over + 1)
        # Invariant: number of requesters with priority over the tracked one.
        above = opened(arbiter).above
        below = Cat(above[i] & (i < who) for i in range(count))
        m.d.comb += [
            ahead.eq(Mux(above.bit_select(who, 1), ones(below), who + ones(above))),
            Assert(~above[0]),
            *(Assert(~above[i] | above[i + 1]) for i in range(count - 1)),
            Assert(passed_over + ahead <= count - 1),
        ]
        return m


class OwnVerdicts(Elaboratable):
    """Every access receives its own verdict, whichever clients restart; the wait of the first
    client is bounded.

    The check is assumed to answer each access within `ANSWER_WITHIN` cycles, with the access's
    own bits, and clients to keep an access until it is taken.
    """

    def __init__(self, arbiter):
        self.arbiter = arbiter

    def elaborate(self, platform):
        m = Module()
        m.submodules.arbiter = arbiter = self.arbiter
        check = arbiter.check
        free_inputs(m, arbiter, check.accesses.ready, check.verdicts.valid, check.verdicts.p)
        busy, age, offset = Signal(), Signal(4), Signal.like(check.verdicts.p.address)
        m.d.comb += [
            check.accesses.ready.eq(AnySeq(1)),
            check.verdicts.valid.eq(AnySeq(1)),
            check.verdicts.p.address.eq(offset),
            Assume(~check.verdicts.valid | busy),
            Assume((age < ANSWER_WITHIN) | check.verdicts.valid),
            Assume(~check.accesses.valid | busy | check.accesses.ready),
            Assert(~(busy & check.accesses.valid & check.accesses.ready)),  # one at a time
        ]
        with m.If(check.verdicts.valid):
            m.d.sync += [busy.eq(0), age.eq(0)]
        with m.Elif(busy):
            m.d.sync += age.eq(age + 1)
        with m.If(check.accesses.valid & check.accesses.ready):
            m.d.sync += [busy.eq(1), offset.eq(check.accesses.p.address.offset)]
        taken = Cat(c.accesses.valid & c.accesses.ready for c in arbiter.clients)
        given = Cat(c.verdicts.valid for c in arbiter.clients)
        m.d.comb += [
            Assert((taken & (taken - 1)) == 0),
            Assert((given & (given - 1)) == 0),
            Assert(taken.any() == (check.accesses.valid & check.accesses.ready)),
        ]
        # The client of the access in the check, and whether its restart dropped the access.
        holder, dropped = Signal(len(taken)), Signal()
        m.d.sync += dropped.eq(
            busy & (dropped | (holder & arbiter.restart).any()) & ~check.verdicts.valid)
        with m.If(taken.any()):
            m.d.sync += holder.eq(taken)
        expecting = []
        for number, client in enumerate(arbiter.clients):
            access = client.accesses
            restart = arbiter.restart[number]
            keeps(m, access, restart)
            expects, tag = Signal(name=f"expects{number}"), Signal.like(offset, name=f"tag{number}")
            m.d.comb += [
                Assume(~(access.valid & expects)),
                Assert(~client.verdicts.valid | expects),
                Assert(~expects | busy & ~dropped & (offset == tag)),
                Cover(client.verdicts.valid),
            ]
            expecting.append(expects)
            with m.If(client.verdicts.valid):
                m.d.comb += Assert(client.verdicts.p.address == tag)
                m.d.sync += expects.eq(0)
            with m.If(access.valid & access.ready):
                m.d.sync += [expects.eq(1), tag.eq(access.p.address.offset)]
            with m.If(restart):
                m.d.sync += expects.eq(0)
        # Invariant: the check is busy while a verdict is awaited, for one owner.
        own = opened(arbiter)
        fsm = own.m._generated["fsm"]
        requests, awaits = fsm.ongoing("REQUEST"), fsm.ongoing("VERDICT")
        m.d.comb += [
            Assert(busy == awaits),
            Assert(~(requests | awaits) | own.owner.any()),
            Assert((own.owner & (own.owner - 1)) == 0),
            Assert(~awaits | (own.drop == dropped) & (own.owner == holder)),
            Assert(~requests | ~own.drop),
            *(Assert(~requests | ~own.owner[number] | client.accesses.valid)
              for number, client in enumerate(arbiter.clients)),
            *(Assert(e == (awaits & own.owner[number] & ~own.drop))
              for number, e in enumerate(expecting)),
        ]
        return m


class Served(OwnVerdicts):
    """The access of the first client is accepted within a bounded time."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        arbiter, stops, waits = self.arbiter, Signal(2), Signal(5)
        own, asked = arbiter.clients[0].accesses, arbiter.check.accesses
        m.d.comb += [
            Assume((stops < 2) | asked.ready),
            Assert(waits <= SERVED_WITHIN),
            Cover(waits == SERVED_WITHIN),
        ]
        m.d.sync += [stops.eq(0), waits.eq(0)]
        with m.If(asked.valid & ~asked.ready):
            m.d.sync += stops.eq(stops + 1)
        with m.If(own.valid & ~own.ready & arbiter.enable & ~arbiter.restart[0]):
            m.d.sync += waits.eq(waits + 1)
        return m


PROOFS = {
    "round-robin-1": lambda: RoundRobin(RoundRobinArbiter(1)),
    "round-robin-3": lambda: RoundRobin(RoundRobinArbiter(3)),
    "round-robin-8": lambda: RoundRobin(RoundRobinArbiter(8)),
    "verdicts": lambda: OwnVerdicts(RegionArbiter(SMALL, 3)),
}
BUGS = {
    "starts again at the last": lambda: RoundRobin(mutated(
        RoundRobinArbiter, "self.grant[:idx].any() for", "self.grant[:idx + 1].any() for")(3)),
    "two grants": lambda: RoundRobin(mutated(
        RoundRobinArbiter, "first[idx] & ~first[:idx].any()", "first[idx]")(3)),
    "verdict after restart": lambda: OwnVerdicts(mutated(
        RegionArbiter, "owner[number] & ~drop)", "owner[number])")(SMALL, 2)),
    "restart of another client": lambda: OwnVerdicts(mutated(
        RegionArbiter, "restarted.eq((owner & self.restart).any())",
        "restarted.eq(self.restart.any())")(SMALL, 2)),
    "verdict to all": lambda: OwnVerdicts(mutated(
        RegionArbiter, "check.verdicts.valid & owner[number] &", "check.verdicts.valid &")(
            SMALL, 2)),
}


@pytest.mark.parametrize("arbiter", PROOFS)
def test_arbiter(arbiter, tmp_path):
    assert verify(PROOFS[arbiter](), tmp_path, depth=3) == "PASS"


@pytest.mark.parametrize("arbiter", ["round-robin-3", "verdicts"])
def test_arbiter_reaches(arbiter, tmp_path):
    assert verify(PROOFS[arbiter](), tmp_path, mode="cover", depth=16) == "PASS"


def test_first_client_is_served(tmp_path):
    assert verify(Served(RegionArbiter(SMALL, 2)), tmp_path, mode="bmc", depth=24) == "PASS"


@pytest.mark.parametrize("bug", BUGS)
def test_arbiter_bug(bug, tmp_path):
    assert verify(BUGS[bug](), tmp_path, mode="bmc", depth=12) == "FAIL"
