"""DmaReadPort: its reads obey AXI4, and no client's buffer overflows."""

import pytest
from amaranth import Elaboratable, Module, Signal
from amaranth.hdl import Assert, Assume, Cover
from hotrow_rtl.config import log2
from hotrow_rtl.memory.burst_scheduler import BurstScheduler
from hotrow_rtl.memory.read_client import ReadClientBuffer
from hotrow_rtl.memory.read_port import DmaReadPort

from tests.formal.axi_rules import reads, restart_ends
from tests.formal.prover import any_constant, free_inputs, keeps, mutated, opened, verify
from tests.formal.small import SMALL

CLIENTS, WORDS = 2, 4  # words of a client's buffer, two bursts
LONGEST_LIST = 128  # bytes
ANSWERED_WITHIN = 12  # cycles between a request, its acceptance and the list's last word
# Cycles after reset: a request takes 4, its first burst 3 more.
DEPTH, BUG_DEPTH = 16, 18


class Lists(Elaboratable):
    """Clients that request any lists and accept their words after any delay."""

    def __init__(self, port=DmaReadPort):
        self.port = port(SMALL, CLIENTS, depth=WORDS)

    def elaborate(self, platform):
        m = Module()
        m.submodules.port = port = self.port
        bus = port.bus
        free_inputs(m, port, port.timeout, bus.arready, bus.rvalid, bus.rid, bus.rlast, bus.rresp,
                    bus.rdata)
        m.d.comb += Assume(any_constant(m, port.timeout)[4:] == 0)
        owed = reads(m, SMALL, bus, longest=SMALL.burst_beats, ids=CLIENTS, outstanding=WORDS,
                     words=WORDS)
        m.d.comb += [
            Assert(bus.rready),
            Assert(~port.idle | port.stopped | ~bus.arvalid & ~sum(owed).any()),
            Cover(owed[0].any() & owed[1].any()),
            Cover(port.stopped),
        ]
        taken_before = Signal(init=1)
        m.d.sync += taken_before.eq(~bus.arvalid | bus.arready)
        for number, client in enumerate(port.clients):
            request, words = client.request, client.words
            keeps(m, request, port.restart)
            m.d.comb += [
                Assume(request.p.address[:6] == 0),
                Assume((request.p.bytes != 0) & (request.p.bytes <= LONGEST_LIST)),
                Cover(words.valid & words.ready & words.p.last & (words.p.fault == 0)),
            ]
            # No word is read beyond the requests since the last restart.
            wanted = Signal(range(8 * LONGEST_LIST), name=f"wanted{number}")
            appears = bus.arvalid & taken_before & (bus.arid == number)
            least = (request.p.bytes + SMALL.bus_bytes - 1) >> log2(SMALL.bus_bytes)
            m.d.comb += Assert(~appears | (bus.arlen < wanted))
            m.d.sync += wanted.eq(wanted + (request.valid & request.ready) * least
                                  - appears * (bus.arlen + 1))
            with m.If(port.restart):
                m.d.sync += wanted.eq(0)
        own = opened(port)
        restart_ends(m, port, own)
        for client in own.clients:
            beats = opened(client).buffer.i
            m.d.comb += Assert(~beats.valid | beats.ready)  # space was reserved
        return m


class Answered(Lists):
    """Without stalls of memory and clients, each request is accepted and its list arrives."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        port, bus = self.port, self.port.bus
        owed = Signal(range(4 * CLIENTS * WORDS))
        m.d.comb += [
            Assume(bus.arready & ~port.restart & (port.timeout == 0)),
            Assume(bus.rvalid == (owed != 0)),
        ]
        m.d.sync += owed.eq(owed + (bus.arvalid & bus.arready) * (bus.arlen + 1) - bus.rvalid)
        for number, client in enumerate(port.clients):
            request, words = client.request, client.words
            age, lists = Signal(6, name=f"age{number}"), Signal(2, name=f"lists{number}")
            took = request.valid & request.ready
            ended = words.valid & words.ready & words.p.last
            m.d.comb += [
                Assume(words.ready),
                Assert(age <= ANSWERED_WITHIN),
            ]
            m.d.sync += lists.eq(lists + took - ended)
            with m.If((request.valid | (lists != 0)) & ~took & ~ended):
                m.d.sync += age.eq(age + 1)
            with m.Else():
                m.d.sync += age.eq(0)
        return m


BUGS = {
    "burst withdrawn": (DmaReadPort, "with m.If(load):", "with m.If(load | dropping):"),
    "space not reserved": (
        ReadClientBuffer, "space_next.eq(space + word_read - self.reserve_len_minus_1 - 1)",
        "space_next.eq(space + word_read)"),
    "beyond the list": (
        BurstScheduler, "Mux(final, last[:width] - word[:width], ~word[:width] & mask)",
        "~word[:width] & mask"),
    "drains for ever": (DmaReadPort, "waiting.eq(~empty)", "waiting.eq(~empty & ~draining)"),
    "request after restart": (BurstScheduler, "with m.If(self.drop | self.clear):",
                              "with m.If(self.drop):"),
}


def planted(part, old, new):
    """The port with a bug in one of its units."""
    bad = mutated(part, old, new)
    return bad if part is DmaReadPort else mutated(DmaReadPort, **{part.__name__: bad})


def test_lists(tmp_path):
    assert verify(Lists(), tmp_path, mode="bmc", depth=DEPTH, timeout=1500) == "PASS"


def test_every_request_is_answered(tmp_path):
    assert verify(Answered(), tmp_path, mode="bmc", depth=16, timeout=1500) == "PASS"


def test_what_is_reached(tmp_path):
    assert verify(Lists(), tmp_path, mode="cover", depth=24, timeout=1500) == "PASS"


@pytest.mark.parametrize("bug", BUGS)
def test_bug(bug, tmp_path):
    proof = Lists(planted(*BUGS[bug]))
    assert verify(proof, tmp_path, mode="bmc", depth=BUG_DEPTH, timeout=1500) == "FAIL"
