"""DmaWritePort: its writes obey AXI4, for all sequences, stops and restarts."""

import pytest
from amaranth import Elaboratable, Module
from amaranth.hdl import Assert, Assume, Cover
from hotrow_rtl.memory.write_client import OUTSTANDING_BURSTS, WriteClientBuffer
from hotrow_rtl.memory.write_port import DmaWritePort

from tests.formal.axi_rules import restart_ends, writes
from tests.formal.prover import any_constant, free_inputs, keeps, mutated, opened, verify
from tests.formal.small import SMALL

CLIENTS, WORDS = 2, 4  # words of a client's buffer, two bursts
DEPTH = 14  # cycles after reset; a beat follows 7 after its word


class Results(Elaboratable):
    """Clients that write any sequences; one of them is striped."""

    def __init__(self, port=DmaWritePort):
        self.port = port(SMALL, CLIENTS, depth=WORDS, striped=(1,))

    def elaborate(self, platform):
        m = Module()
        m.submodules.port = port = self.port
        bus = port.bus
        free_inputs(m, port, port.timeout, bus.awready, bus.wready, bus.bvalid, bus.bid, bus.bresp)
        m.d.comb += Assume(any_constant(m, port.timeout)[4:] == 0)
        owed, _ = writes(m, SMALL, bus, longest=SMALL.burst_beats, ids=CLIENTS,
                         outstanding=OUTSTANDING_BURSTS)
        for client in port.clients:
            keeps(m, client.request, port.restart)
            keeps(m, client.words, port.restart)
            m.d.comb += [
                Assume(client.request.p.address[:6] == 0),
                Cover(client.outcome.valid & (client.outcome.p.fault == 0) & (bus.awlen != 0)),
            ]
        own = opened(port)
        restart_ends(m, port, own)
        for client in own.clients:  # words are in the buffer unless a stop or restart dropped them
            m.d.comb += Assert(~client.beats.ready | client.beats.valid | own.discarding)
        m.d.comb += [
            Assert(bus.bready),
            Assert(~port.idle | port.stopped | ~bus.awvalid & (owed == 0)),
            Cover(port.stopped & bus.wvalid & (bus.wstrb == 0)),
        ]
        return m


BUGS = {
    "burst withdrawn": (DmaWritePort, "with m.If(aw_load):", "with m.If(aw_load | discarding):"),
    "beats after their turn": (DmaWritePort, "final.eq(sent == current.len_minus_1)",
                               "final.eq(sent >= selected_burst.len_minus_1)"),
    "drains for ever": (DmaWritePort, "waiting.eq(not_idle)", "waiting.eq(not_idle & ~draining)"),
    "length of the empty word": (
        WriteClientBuffer, "Mux(keep, burst_len, burst_len - 1)", "burst_len"),
}


def planted(part, old, new):
    """The port with a bug in one of its units."""
    bad = mutated(part, old, new)
    return bad if part is DmaWritePort else mutated(DmaWritePort, **{part.__name__: bad})


def test_results(tmp_path):
    assert verify(Results(), tmp_path, mode="bmc", depth=DEPTH, timeout=1500) == "PASS"


def test_what_is_reached(tmp_path):
    assert verify(Results(), tmp_path, mode="cover", depth=28, timeout=1500) == "PASS"


@pytest.mark.parametrize("bug", BUGS)
def test_bug(bug, tmp_path):
    proof = Results(planted(*BUGS[bug]))
    assert verify(proof, tmp_path, mode="bmc", depth=DEPTH, timeout=1500) == "FAIL"
