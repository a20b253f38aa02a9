"""The AXI4-Lite slave: every response is that of its request, in bounded time, for all time."""

import pytest
from amaranth import Elaboratable, Module, Mux, Signal
from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cover
from hotrow_rtl.host.axi_lite_slave import AXI4LiteSlave
from hotrow_rtl.memory.axi import OKAY, SLVERR

from tests.formal.prover import after_reset, free_inputs, mutated, opened, verify

ADDRESS_WIDTH = 5
ACCEPTED_WITHIN, REPLIED_WITHIN = 2, 3  # cycles of the assumed register block
SERVED = ACCEPTED_WITHIN + REPLIED_WITHIN  # cycles of one access
LONGEST = 2 * SERVED + 1  # cycles that a request waits after its handshake


class RegisterAccess(Elaboratable):
    """The register block is assumed to reply with an access's own address; SLVERR to odd words."""

    def __init__(self, slave):
        self.slave = slave

    def elaborate(self, platform):
        m = Module()
        m.submodules.slave = slave = self.slave
        bus, access, reply = slave.bus, slave.accesses, slave.replies
        free_inputs(m, slave, access.ready, reply.valid, reply.p)
        own = opened(slave)

        # The register block.
        busy, age, current = Signal(), Signal(3), Signal.like(access.p)
        m.d.comb += [
            access.ready.eq(AnySeq(1)),
            reply.valid.eq(AnySeq(1)),
            reply.p.data.eq(current.word),
            reply.p.refused.eq(current.word[0]),
            Assume(~reply.valid | busy),
            Assume(~(access.valid & ~busy) | (age < ACCEPTED_WITHIN - 1) | access.ready),
            Assume(~busy | (age < REPLIED_WITHIN - 1) | reply.valid),
            Assert(~busy | ~access.valid),
            Assert(age < Mux(busy, REPLIED_WITHIN, ACCEPTED_WITHIN)),
        ]
        m.d.sync += age.eq(Mux((busy | access.valid) & ~(access.ready & access.valid), age + 1, 0))
        with m.If(access.valid & access.ready):
            m.d.sync += [busy.eq(1), current.eq(access.p)]
        with m.If(busy & reply.valid):
            m.d.sync += [busy.eq(0), age.eq(0)]

        for valid, ready, payload in ((bus.bvalid, bus.bready, bus.bresp),
                                      (bus.rvalid, bus.rready, bus.rdata)):
            held, before = Signal(), Signal.like(payload)
            m.d.sync += [held.eq(valid & ~ready), before.eq(payload)]
            m.d.comb += [Assert(~held | valid & (payload == before)),
                         Assert(~after_reset(m) | ~valid)]

        # Requests without a response.
        asked, read_at = Signal(), Signal(ADDRESS_WIDTH)
        answered_at, waited = Signal(ADDRESS_WIDTH), Signal(5)
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [asked.eq(1), read_at.eq(bus.araddr)]
        rises = Signal()  # the response to the read is loaded
        m.d.comb += rises.eq(busy & reply.valid & ~current.write)
        with m.If(rises):
            m.d.sync += [asked.eq(0), waited.eq(0), answered_at.eq(read_at)]
        with m.Elif(asked & ~bus.rvalid):
            m.d.sync += waited.eq(waited + 1)
        address, addressed, data_given = Signal(ADDRESS_WIDTH), Signal(), Signal()
        delayed = Signal(5)
        write = Signal()  # the response to the write is loaded
        m.d.comb += write.eq(busy & reply.valid & current.write)
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [addressed.eq(1), address.eq(bus.awaddr)]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += data_given.eq(1)
        with m.If(write):
            m.d.sync += [addressed.eq(0), data_given.eq(0), delayed.eq(0)]
        with m.Elif(addressed & data_given & ~bus.bvalid):
            m.d.sync += delayed.eq(delayed + 1)
        m.d.comb += [
            Assert(~rises | asked),
            Assert(~write | addressed & data_given),
            Assert(~bus.rvalid | (bus.rdata == answered_at[2:])
                   & (bus.rresp == Mux(answered_at[2], SLVERR, OKAY))),
            Assert(waited <= LONGEST),
            Assert(delayed <= LONGEST),
            Cover(waited == LONGEST),
            Cover(delayed == LONGEST - 1),
        ]
        # Invariants.
        active = own.fsm.ongoing("ACCESS") | own.fsm.ongoing("REPLY")
        m.d.comb += [
            Assert(active | own.fsm.ongoing("ARBITRATE")),
            Assert(own.read_full == asked),
            Assert(~asked | (own.read_address == read_at)),
            Assert(own.write_address_full == addressed),
            Assert(~addressed | (own.write_address == address)),
            Assert(own.write_data_full == data_given),
            Assert(busy == own.fsm.ongoing("REPLY")),
            Assert(~active | Mux(own.writing, addressed & data_given & ~bus.bvalid,
                                 asked & ~bus.rvalid)),
            Assert(~busy | (current.write == own.writing)),
            Assert(~busy | (current.word == Mux(own.writing, address, read_at)[2:])),
            Assert(active | (age == 0)),
            Assert(asked & ~bus.rvalid | (waited == 0)),
            Assert(addressed & data_given & ~bus.bvalid | (delayed == 0)),
        ]
        # The cycles that a request has waited, and those that it may still wait.
        left = Mux(busy, REPLIED_WITHIN - age, SERVED - age)
        for counter, waits, mine, other_first in (
                (waited, asked & ~bus.rvalid, ~own.writing, own.can_write),
                (delayed, addressed & data_given & ~bus.bvalid, own.writing, 0)):
            m.d.comb += Assert(~waits | (counter + Mux(
                active, left - 1 + Mux(mine, 0, SERVED + 1),
                SERVED + Mux(other_first, SERVED + 1, 0)) <= LONGEST))
        return m


BUGS = {
    "writes starve reads": ("can_write = write_address_full & write_data_full & ~bus.bvalid",
                            "can_write = write_address_full & write_data_full"),
    "response lost": ("with m.If(bus.rvalid & bus.rready):", "with m.If(bus.rvalid):"),
    "address of the other": ("Mux(writing, write_address, read_address)",
                             "Mux(can_write, write_address, read_address)"),
}


def test_slave(tmp_path):
    assert verify(RegisterAccess(AXI4LiteSlave(ADDRESS_WIDTH)), tmp_path, depth=6) == "PASS"


def test_slave_reaches_its_bound(tmp_path):
    assert verify(RegisterAccess(AXI4LiteSlave(ADDRESS_WIDTH)), tmp_path, mode="cover",
                  depth=40) == "PASS"


@pytest.mark.parametrize("bug", BUGS)
def test_slave_bug(bug, tmp_path):
    slave = mutated(AXI4LiteSlave, *BUGS[bug])(ADDRESS_WIDTH)
    assert verify(RegisterAccess(slave), tmp_path, mode="bmc", depth=30) == "FAIL"
