"""Copies: every byte that leaves for the row ports lies in the region that the host registered.

`ItemAddress` is left out: any address may come from it, so that nothing rests on a product.
"""

import pytest
from amaranth import Elaboratable, Module, Signal
from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect
from hotrow_rtl.copy_addresses import CopyAddresses
from hotrow_rtl.copy_gate import CopyGate
from hotrow_rtl.item_address import STRIDE4_WIDTH, ItemAddress
from hotrow_rtl.layouts import packed_address
from hotrow_rtl.page_cutter import crosses_page

from tests.formal.host import registered
from tests.formal.prover import any_constant, free_inputs, keeps, mutated, verify
from tests.formal.small import SMALL

# Cycles after reset: the tables are cleared first, and a row waits for its state.
DEPTH = SMALL.handles + CopyAddresses.latency + 6


class AnyAddress(wiring.Component):
    """In place of `ItemAddress`: any address, when its pipeline advances."""

    latency = ItemAddress.latency

    enable: In(1)
    base: In(packed_address)
    stride4: In(STRIDE4_WIDTH)
    number: In(32)
    address: Out(packed_address)
    overflow: Out(1)

    def elaborate(self, platform):
        m = Module()
        with m.If(self.enable):
            m.d.sync += [self.address.as_value().eq(AnySeq(packed_address.size)),
                         self.overflow.eq(AnySeq(1))]
        return m


class Copies(Elaboratable):
    """Addresses and gate together; regions and tables are registered before the first copy."""

    def __init__(self, *bug, gate=CopyGate):
        self.addresses = mutated(CopyAddresses, *bug, ItemAddress=AnyAddress)(SMALL)
        self.gate = gate(SMALL)

    def elaborate(self, platform):
        m = Module()
        m.submodules.addresses = addresses = self.addresses
        m.submodules.gate = gate = self.gate
        settings = [addresses.to_tables, addresses.slots, addresses.state_slots, addresses.stride,
                    addresses.spans, addresses.source, addresses.final_bytes]
        free_inputs(m, addresses, *settings, addresses.checked.ready)
        free_inputs(m, gate, gate.checked.valid, gate.checked.p)
        connect(m, addresses=addresses.checked, gate=gate.checked)
        for setting in settings:
            value = setting if isinstance(setting, Signal) else setting.as_value()
            any_constant(m, value)
        wanted, update = addresses.wanted, addresses.region_update
        keeps(m, wanted)
        started, second = Signal(), Signal()  # a row waits for its state
        m.d.sync += started.eq(started | wanted.valid)
        with m.If(wanted.valid & wanted.ready):
            m.d.sync += second.eq(~wanted.p.last)
        row = SMALL.row_bytes
        m.d.comb += [
            Assume(~wanted.valid | addresses.ready),
            Assume(~(started | wanted.valid) | ~update.enable),
            Assume(~(started | wanted.valid) | ~addresses.table_update.enable),
            Assume(~second | wanted.p.last & wanted.p.is_state),
            Assume(second | ~wanted.p.is_state),
            # Of a span, as its pieces are cut.
            Assume(addresses.stride[:4] == 0),
            Assume(~addresses.spans | (addresses.stride <= row) & (addresses.stride != 0)
                   & (addresses.final_bytes <= row) & (addresses.final_bytes != 0)
                   & (addresses.final_bytes[:2] == 0) & wanted.p.last),
        ]

        handle = any_constant(m, Signal(16))
        entry = registered(m, SMALL, update, addresses.ready, handle)
        first = Signal(SMALL.address_width)
        beyond = Signal(SMALL.address_width + 1)
        m.d.comb += [first.eq(entry.base16 << 4), beyond.eq(first + entry.size)]
        copy, valid = gate.copies.p, gate.copies.valid
        its = copy.identity
        m.d.comb += [
            Assert(~valid | (its.bytes != 0) & (its.bytes <= row) & (its.bytes[:2] == 0)),
            Assert(~valid | (copy.two_reads == crosses_page(copy.source, its.bytes))),
            Assert(~valid | (copy.two_writes == crosses_page(copy.destination, its.bytes))),
            Assert(~(valid & addresses.to_tables) | (copy.source[:2] == 0)),
            Assert(~valid | addresses.to_tables | (copy.destination[:2] == 0)),
        ]
        with m.If(valid & (its.source.handle == handle)):
            m.d.comb += [
                Assert(entry.valid),
                Assert(copy.source >= first),
                Assert(copy.source + its.bytes <= beyond),
                Cover(its.last & addresses.to_tables),
            ]
        with m.If(valid & (its.destination.handle == handle)):
            m.d.comb += [
                Assert(entry.valid & entry.writable),
                Assert(copy.destination >= first),
                Assert(copy.destination + its.bytes <= beyond),
                Cover(~its.last),
                Cover(addresses.spans),
            ]
        return m


BUGS = {
    "offset beyond 2**48": ("writes.region | packed.beyond_destination", "writes.region"),
    "source unchecked": ("bad_source.eq(reads.region | packed", "bad_source.eq(packed"),
    "read-only written": ("bad_source | bad_destination | writes.read_only | crooked",
                          "bad_source | bad_destination | crooked"),
    "verdict of another copy": ("packed = notes[-1], addresses[-1]",
                                "packed = notes[-2], addresses[-1]"),
}


@pytest.mark.formal
def test_every_byte_inside(tmp_path):
    assert verify(Copies(), tmp_path, mode="bmc", depth=DEPTH, timeout=1500) == "PASS"


@pytest.mark.formal
def test_copies_are_reached(tmp_path):
    assert verify(Copies(), tmp_path, mode="cover", depth=DEPTH, timeout=1500) == "PASS"


@pytest.mark.formal
@pytest.mark.parametrize("bug", BUGS)
def test_bug(bug, tmp_path):
    assert verify(Copies(*BUGS[bug]), tmp_path, mode="bmc", depth=DEPTH, timeout=1500) == "FAIL"


@pytest.mark.formal
def test_gate_bug(tmp_path):
    bug = mutated(CopyGate, "good.eq(~barred & ~item.refused)", "good.eq(~item.refused)")
    assert verify(Copies(gate=bug), tmp_path, mode="bmc", depth=DEPTH, timeout=1500) == "FAIL"
