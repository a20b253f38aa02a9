"""RingAddress: an address is that of the unit's own entry, whichever units are restarted."""

import pytest
from amaranth import Array, Cat, Elaboratable, Module, Signal
from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cover
from hotrow_rtl.config import log2
from hotrow_rtl.contract.encoding import COMMAND_BYTES
from hotrow_rtl.host.ring_address import RingAddress
from hotrow_rtl.interfaces.records import packed_address

from tests.formal.prover import any_constant, free_inputs, mutated, opened, verify
from tests.formal.small import SMALL

WRITES = (True, False, True)


class OwnEntries(Elaboratable):
    """One arbitrary unit: each number has one access, to its entry, and one address.

    The region check is assumed to answer each access once, unless it is dropped.
    """

    def __init__(self, rings):
        self.rings = rings

    def elaborate(self, platform):
        m = Module()
        m.submodules.rings = rings = self.rings
        region, count = rings.region, len(WRITES)
        free_inputs(m, rings, region.verdicts.valid)
        who = any_constant(m, Signal(range(count)))
        asked = Signal()  # the check has an access
        m.d.comb += [Assume(who < count), region.verdicts.valid.eq(AnySeq(1)),
                     Assume(~region.verdicts.valid | asked)]
        fire = Signal()
        m.d.comb += fire.eq(region.accesses.valid & region.accesses.ready & ~rings.region_restart)
        m.d.sync += asked.eq((asked & ~region.verdicts.valid | fire) & ~rings.region_restart)

        entries = list(rings.entries)
        accepted = Array([e.numbers.valid & e.numbers.ready for e in entries])[who]
        addressed = Array([e.addresses.valid for e in entries])[who]
        restart = rings.restart.bit_select(who, 1)
        ring = Array([each.as_value() for each in rings.rings])[who]
        index = Array([e.numbers.p[:16] & last
                       for e, last in zip(entries, rings.last, strict=True)])[who]
        expects, sent, wanted = Signal(), Signal(), Signal(packed_address)
        given = Signal(packed_address)
        m.d.comb += given.as_value().eq(ring)
        with m.If(addressed | restart):
            m.d.sync += [expects.eq(0), sent.eq(0)]
        with m.Elif(accepted):
            m.d.sync += [expects.eq(1), wanted.handle.eq(given.handle),
                         wanted.offset.eq(given.offset + (index << log2(COMMAND_BYTES)))]
        with m.Elif(expects & fire):
            m.d.sync += sent.eq(1)
        valid = Cat(e.addresses.valid for e in entries)
        own = opened(rings)
        fsm = own.m._generated["fsm"]
        at = {name: fsm.ongoing(name) for name in ("NUMBER", "OFFSET", "ACCESS", "VERDICT")}
        owns = own.owner.bit_select(who, 1)
        m.d.comb += [
            Assert((valid & (valid - 1)) == 0),
            Assert(valid.any() == (region.verdicts.valid & at["VERDICT"])),
            Assert(~addressed | expects & sent),
            Assert(~(accepted & expects)),
            Cover(addressed & (who == 1)),
            # Invariants: who waits owns the access in progress.
            Assert((own.owner & (own.owner - 1)) == 0),
            Assert(at["NUMBER"] | own.owner.any()),
            Assert(expects == (owns & (at["ACCESS"] | at["VERDICT"]))),
            Assert(sent == (owns & at["VERDICT"])),
            Assert(~asked | at["VERDICT"]),
            Assert(~at["VERDICT"] | asked),
        ]
        with m.If(expects & region.accesses.valid):
            m.d.comb += [
                Assert(region.accesses.p.address.as_value() == wanted.as_value()),
                Assert(region.accesses.p.bytes == COMMAND_BYTES),
                Assert(region.accesses.p.write == Array(map(int, WRITES))[who]),
            ]
        with m.If(expects):
            m.d.comb += Assert(own.address.as_value() == wanted.as_value())
        return m


BUGS = {
    "restart of another unit": (
        "self.region_restart.eq((owner & self.restart).any())",
        "self.region_restart.eq(self.restart.any())"),
    "address after a restart": (
        "with m.If(self.region_restart | verdict.valid)", "with m.If(verdict.valid)"),
    "number of another unit": ("for value, own in zip(values, owner, strict=True)",
                               "for value, own in zip(values, owner | 1, strict=True)"),
}


def test_each_unit_gets_its_own_entries(tmp_path):
    assert verify(OwnEntries(RingAddress(SMALL, WRITES)), tmp_path, depth=3) == "PASS"


def test_an_address_is_reached(tmp_path):
    assert verify(OwnEntries(RingAddress(SMALL, WRITES)), tmp_path, mode="cover",
                  depth=12) == "PASS"


@pytest.mark.parametrize("bug", BUGS)
def test_bug(bug, tmp_path):
    rings = mutated(RingAddress, *BUGS[bug])(SMALL, WRITES)
    assert verify(OwnEntries(rings), tmp_path, mode="bmc", depth=12) == "FAIL"
