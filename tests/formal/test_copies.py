"""Copies: the region check allowed all bytes of each copy that reaches the row ports.

The proof tracks one arbitrary access (address and size) and the check's verdict on it. A copy of
that address and size is sent only if the verdict allows it, writes only if the region is writable,
and uses the address that the check returned; test_region_check proves that every byte then lies
inside the region. The proof does not depend on the tables or on products: `ClearedRam` and
`ArrayAddress` may return anything. Simulation tests cover the refusal of addresses beyond 2**48.
"""

import pytest
from amaranth import Cat, Elaboratable, Module, Mux, Signal
from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import data
from amaranth.lib.wiring import connect
from hotrow_rtl.interfaces.records import packed_address
from hotrow_rtl.memory.region_check import RegionCheck, access
from hotrow_rtl.mover.addressing.address_pipeline import AddressPipeline, ArrayAddress
from hotrow_rtl.mover.addressing.row_state_gate import RowStateGate
from hotrow_rtl.mover.port.page_splitter import crosses_page
from hotrow_rtl.mover.port.payloads import BYTES_WIDTH
from hotrow_rtl.primitives.ram import ClearedRam

from tests.formal.prover import any_constant, free_inputs, keeps, mutated, opened, verify
from tests.formal.small import SMALL

DEPTH = AddressPipeline.latency + 6  # cycles after reset, in which a row waits for its state


class AnyTable(ClearedRam):
    """Replaces `ClearedRam`: any entry."""

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.ready.eq(1)
        with m.If(self.read_enable):
            m.d.sync += self.read_data.as_value().eq(AnySeq(self.shape.size))
        return m


class AnyAddress(ArrayAddress):
    """Replaces `ArrayAddress`: any address in each step of the pipeline."""

    def elaborate(self, platform):
        m = Module()
        with m.If(self.enable):
            m.d.sync += [self.address.as_value().eq(AnySeq(packed_address.size)),
                         self.overflow.eq(AnySeq(1))]
        return m


def specified(tracked):
    """Replaces `RegionCheck`: returns `tracked` for the tracked access, anything for others.

    Its pipeline is the one that test_region_check proves.
    """

    class Specified(RegionCheck):
        def elaborate(self, platform):
            m = Module()
            out, advance = self.verdicts, Signal()
            stage = data.StructLayout({"valid": 1, "ask": access})
            first, second = Signal(stage), Signal(stage)
            ask, free, its = second.ask, Signal.like(out.p), Signal()
            refused = Signal()
            m.d.comb += [
                self.ready.eq(1),
                free.as_value().eq(AnySeq(out.p.shape().size)),
                its.eq((ask.address.as_value() == tracked.place.as_value())
                       & (ask.bytes == tracked.bytes)),
                refused.eq(Mux(its, ~tracked.inside, free.region)),
                advance.eq((~out.valid | out.ready) & ~self.update.enable & ~self.stall),
                self.accesses.ready.eq(advance),
            ]
            with m.If(out.ready):
                m.d.sync += out.valid.eq(0)
            with m.If(advance):
                m.d.sync += [
                    first.valid.eq(self.accesses.valid),
                    first.ask.eq(self.accesses.p),
                    second.eq(first),
                    out.valid.eq(second.valid),
                    out.p.region.eq(refused),
                    out.p.read_only.eq(~refused & Mux(
                        its, ask.write & ~tracked.writable, free.read_only)),
                    out.p.address.eq(Mux(its & ~refused, tracked.address, free.address)),
                ]
            return m

    return Specified


class Copies(Elaboratable):
    """Address pipeline and gate; regions are registered before the first copy."""

    def __init__(self, *bug, gate=RowStateGate):
        self.tracked = Signal(data.StructLayout({
            "place": packed_address, "bytes": BYTES_WIDTH, "inside": 1, "writable": 1,
            "address": SMALL.address_width}))
        self.addresses = mutated(
            AddressPipeline, *bug, ArrayAddress=AnyAddress, ClearedRam=AnyTable,
            RegionCheck=specified(self.tracked))(SMALL)
        self.gate = gate(SMALL)

    def elaborate(self, platform):
        m = Module()
        m.submodules.addresses = addresses = self.addresses
        m.submodules.gate = gate = self.gate
        setting = addresses.setting
        free_inputs(m, addresses, setting, addresses.checked.ready)
        free_inputs(m, gate, gate.checked.valid, gate.checked.p)
        connect(m, addresses=addresses.checked, gate=gate.checked)
        any_constant(m, setting.as_value())
        wanted = addresses.requests
        keeps(m, wanted)
        second = Signal()  # the state of the previous row is next
        with m.If(wanted.valid & wanted.ready):
            m.d.sync += second.eq(~wanted.p.last)
        row = SMALL.row_bytes
        m.d.comb += [
            Assume(~second | wanted.p.last & wanted.p.is_state),
            Assume(second | ~wanted.p.is_state),
            # Pieces of a span.
            Assume(setting.stride[:4] == 0),
            Assume(~setting.spans | (setting.stride <= row) & (setting.stride != 0)
                   & (setting.final_bytes <= row) & (setting.final_bytes != 0)
                   & (setting.final_bytes[:2] == 0) & wanted.p.last),
        ]

        tracked = self.tracked
        any_constant(m, tracked.as_value())

        def allowed(place, size, address, write):
            """True unless this is the tracked access and its verdict refuses it."""
            its = (place.as_value() == tracked.place.as_value()) & (size == tracked.bytes)
            return ~its | (tracked.inside & (tracked.writable | (not write))
                           & (address == tracked.address))

        copy, valid = gate.transfers.p, gate.transfers.valid
        its = copy.info
        m.d.comb += [
            Assert(~valid | (its.bytes != 0) & (its.bytes <= row) & (its.bytes[:2] == 0)),
            Assert(~valid | (copy.two_reads == crosses_page(copy.source, its.bytes))),
            Assert(~valid | (copy.two_writes == crosses_page(copy.destination, its.bytes))),
            Assert(~(valid & setting.to_tables) | (copy.source[:2] == 0)),
            Assert(~valid | setting.to_tables | (copy.destination[:2] == 0)),
        ]
        for end, write in (("source", 0), ("destination", 1)):
            m.d.comb += Assert(~valid | allowed(its[end], its.bytes, copy[end], write))
        m.d.comb += [
            Cover(valid & its.last & setting.to_tables),
            Cover(valid & ~its.last),
            Cover(valid & setting.spans),
        ]

        # Invariants by stage: each verdict is in the stage of its address.
        def sound(item):
            """A copy without error lies inside its regions."""
            size = item.info.bytes
            clauses = [allowed(item.info[end], size, item[end], write)
                       for end, write in (("source", 0), ("destination", 1))]
            clauses += [size <= row, size[:2] == 0,
                        item.two_reads == crosses_page(item.source, size),
                        item.two_writes == crosses_page(item.destination, size),
                        Mux(setting.to_tables, item.source, item.destination)[:2] == 0]
            return (size == 0) | Cat(clauses).all()

        own = opened(addresses)
        checks = own.stages[-RegionCheck.latency:]
        m.d.comb += Assert(
            own.source_check.verdicts.valid == own.destination_check.verdicts.valid)
        for end, write, check in (("source", 0, own.source_check),
                                  ("destination", 1, own.destination_check)):
            inner = opened(check)
            for stage, note, place in zip((inner.first, inner.second), checks, own.addresses,
                                          strict=False):
                m.d.comb += [
                    Assert(stage.valid == note.valid),
                    Assert(~stage.valid | (stage.ask.bytes == note.bytes)
                           & (stage.ask.address.as_value() == place[end].as_value())
                           & (stage.ask.write == write)),
                ]
            verdict, place = check.verdicts, own.addresses[-1][end]
            granted = verdict.valid & ~verdict.p.region & ~(verdict.p.read_only & write)
            m.d.comb += [
                Assert(~verdict.valid | checks[-1].valid),
                Assert(~granted | allowed(place, checks[-1].bytes, verdict.p.address, write)),
            ]
        for note in own.stages:
            m.d.comb += Assert(~note.valid | (note.status != 0)
                               | (note.bytes <= row) & (note.bytes[:2] == 0)
                               & (note.is_state | (note.bytes != 0)))
            m.d.comb += Assert(~note.valid | note.last | ~note.is_state)
        # A row with a state to come is not a state itself, in all stages up to the gate.
        entrance = opened(own.skid)
        for there, item in ((own.skid.o.valid, own.skid.o.p),
                            (~entrance.spare_empty, entrance.spare),
                            (own.read.valid, own.read.request),
                            (own.described.valid, own.described.request)):
            m.d.comb += Assert(~there | item.last | ~item.is_state)
        checked = addresses.checked
        late = checked.p.transfer.info
        kept = opened(gate)
        m.d.comb += [
            # As assumed for `wanted`, a state follows its row, and nothing else does.
            Assume(~kept.awaits_state | ~checked.valid | late.last),
            Assume(kept.awaits_state | ~checked.valid | checked.p.refused | (late.bytes != 0)),
            Assert(~checked.valid | checked.p.refused | sound(checked.p.transfer)),
            Assert(~(kept.held_valid | kept.awaits_state & ~kept.row_rejected)
                   | sound(kept.held.transfer)),
            Assert(~kept.held_valid | (kept.held.transfer.info.bytes != 0)),
            Assert(~(kept.held_valid & kept.awaits_state)),
            Assert(~kept.row_rejected | kept.awaits_state),
            Assert(~checked.valid | checked.p.refused | late.last | (late.bytes != 0)),
            Assert(~kept.awaits_state | kept.row_rejected | (kept.held.transfer.info.bytes != 0)),
        ]
        return m


BUGS = {
    "source unchecked": ("outside_source.eq((reads.region | packed",
                         "outside_source.eq((packed"),
    "read-only written": ("bad_source | outside_destination | writes.read_only | misaligned",
                          "bad_source | outside_destination | misaligned"),
    "verdict of another copy": ("packed = stages[-1], addresses[-1]",
                                "packed = stages[-2], addresses[-1]"),
}


def test_no_copy_without_consent(tmp_path):
    assert verify(Copies(), tmp_path, depth=2, timeout=1500) == "PASS"


def test_copies_are_reached(tmp_path):
    assert verify(Copies(), tmp_path, mode="cover", depth=DEPTH, timeout=1500) == "PASS"


@pytest.mark.parametrize("bug", BUGS)
def test_bug(bug, tmp_path):
    assert verify(Copies(*BUGS[bug]), tmp_path, mode="bmc", depth=DEPTH, timeout=1500) == "FAIL"


def test_gate_bug(tmp_path):
    bug = mutated(RowStateGate, "accepted.eq(~row_rejected & ~item.refused)",
                  "accepted.eq(~item.refused)")
    assert verify(Copies(gate=bug), tmp_path, mode="bmc", depth=DEPTH, timeout=1500) == "FAIL"
