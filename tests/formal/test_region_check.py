"""Region check: an allowed access lies inside the region that the host registered, without wrap.

The proof tracks one arbitrary handle and the region that the host registered under it.
"""

from itertools import pairwise

import pytest
from amaranth import Cat, Elaboratable, Module, Signal
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import data
from hotrow_rtl.interfaces.records import region
from hotrow_rtl.memory.region_check import RegionCheck, access

from tests.formal.host import registered
from tests.formal.prover import any_constant, free_inputs, mutated, opened, row_of, verify
from tests.formal.small import SMALL


class Inside(Elaboratable):
    """An access is allowed exactly if every byte lies inside the region; its address is right."""

    def __init__(self, check):
        self.check = check

    def elaborate(self, platform):
        m = Module()
        m.submodules.check = check = self.check
        config = check.config
        free_inputs(m, check)
        handle = any_constant(m, Signal(16))
        known = handle < config.handles
        entry = registered(m, config, check.update, check.ready, handle)
        wanted, out = check.accesses, check.verdicts
        m.d.comb += Assume(~wanted.valid | check.ready)

        # The access and the region registered then, in a pipeline beside that of the check.
        stage = data.StructLayout({"valid": 1, "ask": access, "entry": region(config)})
        stages = [Signal(stage, name=f"stage{number}") for number in range(check.latency)]
        with m.If(wanted.ready):
            m.d.sync += [
                stages[0].valid.eq(wanted.valid),
                stages[0].ask.eq(wanted.p),
                stages[0].entry.eq(entry),
                *(after.eq(before) for before, after in pairwise(stages)),
            ]
        with m.Elif(out.ready):
            m.d.sync += stages[-1].valid.eq(0)
        held, before = Signal(), Signal.like(out.p)
        m.d.sync += [held.eq(out.valid & ~out.ready), before.eq(out.p)]
        m.d.comb += [
            Assert(out.valid == stages[-1].valid),
            Assert(~held | out.valid & (out.p.as_value() == before.as_value())),
        ]

        ask, given = stages[-1].ask, stages[-1].entry
        within = ask.address.offset + ask.bytes <= given.size
        allowed = ~out.p.region & ~out.p.read_only
        with m.If(out.valid & (ask.address.handle == handle)):
            m.d.comb += [
                Assert(out.p.region == ~(known & given.valid & within)),
                Assert(out.p.read_only == (~out.p.region & ask.write & ~given.writable)),
                Cover(allowed & ask.write & (ask.bytes == given.size) & (given.size > 1 << 20)),
                Cover(out.p.region & known & given.valid),
                Cover(out.p.read_only),
            ]
            with m.If(allowed & (ask.bytes != 0)):
                first = given.base16 << 4
                m.d.comb += [
                    Assert(out.p.address == first + ask.address.offset),
                    Assert(out.p.address >= first),
                    Assert(out.p.address + ask.bytes <= first + given.size),
                ]

        # Invariants: the stages, and the row of the handle.
        own = opened(check)
        table = opened(own.table)
        row, addressed = row_of(table.ram, handle[:len(check.update.index)])
        stored = data.View(region(config), row.data)
        m.d.comb += addressed
        with m.If(known & check.ready):
            m.d.comb += [
                Assert(stored.valid == entry.valid),
                Assert(~entry.valid | (stored.as_value() == entry.as_value())),
            ]
        with m.Else():
            m.d.comb += [Assert(~entry.valid)]
        with m.If(known & ~check.ready & (handle < table.sweep_row)):
            m.d.comb += Assert(~stored.valid)
        m.d.comb += Assert(check.ready | ~Cat(s.valid for s in stages).any())
        for stage, inner, fetched in ((stages[0], own.read, own.table.read_data),
                                      (stages[1], own.compared, own.entry)):
            asked = stage.ask
            m.d.comb += Assert(inner.valid == stage.valid)
            with m.If(stage.valid):
                m.d.comb += [
                    Assert(inner.known == (asked.address.handle < config.handles)),
                    Assert(inner.write == asked.write),
                    Assert(inner.offset == asked.address.offset),
                    Assert(inner.end == asked.address.offset + asked.bytes),
                ]
                with m.If(known & (asked.address.handle == handle)):
                    m.d.comb += [
                        Assert(fetched.valid == stage.entry.valid),
                        Assert(~fetched.valid
                               | (fetched.as_value() == stage.entry.as_value())),
                    ]
            m.d.comb += Assert(~stage.entry.valid | (
                (stage.entry.base16 << 4) + stage.entry.size <= 1 << config.address_width))
        m.d.comb += [Assert(~e.valid | ((e.base16 << 4) + e.size <= 1 << config.address_width))
                     for e in (entry, given)]
        return m


BUGS = {
    "one byte beyond": ("compared.end > entry.size", "compared.end > entry.size + 1"),
    "end wraps": ('"end": OFFSET_WIDTH + 1', '"end": OFFSET_WIDTH'),
    "handles alias": ("refused = ~compared.known | ~entry.valid", "refused = ~entry.valid"),
    "read while written": ("& ~self.update.enable & ~self.stall", "& ~self.stall"),
}


def test_every_byte_inside(tmp_path):
    assert verify(Inside(RegionCheck(SMALL)), tmp_path, depth=3) == "PASS"


def test_verdicts_are_reached(tmp_path):
    assert verify(Inside(RegionCheck(SMALL)), tmp_path, mode="cover", depth=16) == "PASS"


@pytest.mark.parametrize("bug", BUGS)
def test_bug(bug, tmp_path):
    check = mutated(RegionCheck, *BUGS[bug])(SMALL)
    assert verify(Inside(check), tmp_path, mode="bmc", depth=16) == "FAIL"
