"""Row ports: the reads and writes of copies obey AXI4, with any stops and restarts."""

import pytest
from amaranth import Elaboratable, Module, ResetInserter, Signal
from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib.wiring import connect
from hotrow_rtl.mover.engine import FlushTimer
from hotrow_rtl.mover.port.axi_read import RowReadPort
from hotrow_rtl.mover.port.axi_write import RowWritePort
from hotrow_rtl.mover.port.burst_tracker import BurstTracker
from hotrow_rtl.mover.port.page_splitter import PageSplitter, crosses_page
from hotrow_rtl.mover.port.payloads import buffer_words, pending_writes
from hotrow_rtl.mover.port.reorder_buffer import ReorderBuffer

from tests.formal.axi_rules import reads, restart_ends, writes
from tests.formal.prover import any_constant, free_inputs, keeps, mutated, opened, verify
from tests.formal.small import SMALL

READ_DEPTH, WRITE_DEPTH = 17, 10  # cycles after reset: two bursts, a stop or a restart


def any_spans(m, cutter, config):
    """Send any spans of complete lanes, none longer than a row."""
    spans = cutter.ranges
    free_inputs(m, cutter, cutter.bursts.ready)
    keeps(m, spans)
    m.d.comb += [
        Assume(spans.p.address[:2] == 0),
        Assume(spans.p.bytes[:2] == 0),
        Assume((spans.p.bytes != 0) & (spans.p.bytes <= config.row_bytes)),
        Assume(spans.p.crosses == crosses_page(spans.p.address, spans.p.bytes)),
    ]


def any_timeout(m, port):
    """Stop the port after any number of cycles, or never; restart it as the mover does.

    Returns
    -------
    clear : Signal
        Clears the units before the port.
    """
    m.d.comb += Assume(any_constant(m, port.timeout)[4:] == 0)
    m.submodules.flush = flush = FlushTimer()
    restart = Signal()
    m.d.sync += restart.eq(flush.restart)
    m.d.comb += [
        flush.restart.eq(AnySeq(1)),
        flush.drained.eq(port.idle | port.stopped),
        port.restart.eq(restart),
        Cover(port.stopped),
    ]
    return flush.clear


class Reads(Elaboratable):
    """Splitter, tracker, port and buffer; words are freed in any cycle."""

    def __init__(self, *, cutter=PageSplitter, window=BurstTracker, port=RowReadPort):
        self.config = SMALL
        self.cutter, self.window, self.port = cutter(SMALL), window(SMALL), port(SMALL)

    def elaborate(self, platform):
        m = Module()
        config, cutter, window, port = self.config, self.cutter, self.window, self.port
        clear, buffer = Signal(), ReorderBuffer(config)
        m.submodules.cutter = ResetInserter(clear)(cutter)
        m.submodules.window = ResetInserter(clear)(window)
        m.submodules.buffer = ResetInserter(clear)(buffer)
        m.submodules.port = port
        m.d.comb += clear.eq(any_timeout(m, port))
        restart_ends(m, port, opened(port))
        any_spans(m, cutter, config)
        connect(m, cutter=cutter.bursts, window=window.bursts)
        connect(m, window=window.requests, port=port.bursts)
        m.d.comb += [
            buffer.allocations.eq(window.allocations),
            buffer.beats.eq(port.beats),
            window.finished.eq(buffer.finished),
            window.stopped.eq(port.stopped),
            window.freed.eq(AnySeq(1)),
            window.responses.ready.eq(AnySeq(1)),
        ]
        longest = config.row_bytes // config.bus_bytes + 1
        owed = reads(m, config, port.bus, longest=longest, ids=config.outstanding,
                     outstanding=1, words=longest)
        m.d.comb += [
            Assert(~port.idle | ~port.bus.arvalid & ~sum(owed).any()),
            Assert(port.bus.rready),
            Cover(sum(owed) == config.outstanding),
            Cover(port.bus.arvalid & (port.bus.araddr[:12] == 0) & (port.bus.arid == 1)),
        ]
        return m


class Room(Elaboratable):
    """The buffer has space for the words requested and not freed."""

    def __init__(self, window=BurstTracker):
        self.window = window(SMALL)

    def elaborate(self, platform):
        m = Module()
        m.submodules.window = window = self.window
        free_inputs(m, window)
        words, row = buffer_words(SMALL), SMALL.row_bytes // SMALL.bus_bytes
        own, kept = opened(window), Signal(range(2 * words))
        accepted = window.bursts.valid & window.bursts.ready
        length = window.bursts.p.len_minus_1 + 1
        m.d.sync += kept.eq(kept + accepted * length - window.freed)
        m.d.comb += [
            Assume(length <= row + 1),
            Assume(~window.freed | (kept != 0)),
            Assert(~window.requests.valid | (kept <= words)),
            Cover(window.requests.valid & (kept == words)),
            # Invariant: at most one burst waits for space.
            Assert(own.space == words - kept),
            Assert(own.pending | (own.space >= 0)),
            Assert(kept <= words + row + 1),
        ]
        return m


class Writes(Elaboratable):
    """Splitter and port; words and the acceptance of answers come in any cycle."""

    def __init__(self, *, cutter=PageSplitter, port=RowWritePort):
        self.config, self.cutter, self.port = SMALL, cutter(SMALL), port(SMALL)

    def elaborate(self, platform):
        m = Module()
        config, cutter, port = self.config, self.cutter, self.port
        clear = Signal()
        m.submodules.cutter = ResetInserter(clear)(cutter)
        m.submodules.port = port
        m.d.comb += clear.eq(any_timeout(m, port))
        restart_ends(m, port, opened(port))
        any_spans(m, cutter, config)
        connect(m, cutter=cutter.bursts, port=port.bursts)
        m.d.comb += [
            port.words.valid.eq(AnySeq(1)),
            port.words.p.as_value().eq(AnySeq(len(port.words.p.as_value()))),
            port.responses.ready.eq(AnySeq(1)),
        ]
        owed, unpaid = writes(
            m, config, port.bus, longest=config.row_bytes // config.bus_bytes + 1, ids=1,
            outstanding=pending_writes(config))
        # After a stop or restart nothing is written until the port has drained.
        closed = Signal()
        m.d.sync += closed.eq((closed | port.stopped | port.restart) & ~port.idle)
        fresh, idles = Signal(), Signal(2)
        with m.If(closed & unpaid & ~port.bus.wvalid):
            m.d.sync += idles.eq(idles + 1)
        with m.Else():
            m.d.sync += idles.eq(0)
        m.d.sync += fresh.eq(port.bus.wvalid & ~port.bus.wready)
        m.d.comb += [
            Assert(~(closed & port.bus.wvalid & ~fresh) | (port.bus.wstrb == 0)),
            Assert(idles <= 2),  # the beats of an address sent follow without a client
            Assert(~port.idle | (owed == 0)),
            Cover(closed & unpaid),
        ]
        return m


READ_BUGS = {
    "drains for ever": {"port": ("waiting.eq(~self.idle)", "waiting.eq(~self.idle & ~draining)")},
    "burst withdrawn": {"port": (
        "with m.If(bus.arready):", "with m.If(bus.arready | closed):")},
    "page crossed": {"cutter": ("Mux(crosses, ~word_in_page, len_minus_1)", "len_minus_1")},
    "an id twice": {"window": ("~retire & (in_flight_count == count - 1)",
                                "~retire & (in_flight_count == count)")},
}
WRITE_BUGS = {
    "drains for ever": {"port": ("waiting.eq(~self.idle)", "waiting.eq(~self.idle & ~draining)")},
    "burst withdrawn": {"port": (
        "with m.If(bus.awready):", "with m.If(bus.awready | closed):")},
    "a beat too many": {"port": (
        "final.eq(word_idx == lengths.r_data)", "final.eq(word_idx > lengths.r_data)")},
    "beats not paid": {"port": (
        "w_load.eq(w_ready & words_due & (closed | self.words.valid))",
        "w_load.eq(w_ready & words_due & self.words.valid & ~closed)")},
    "written after a stop": {"port": ("Mux(closed, 0, self.words.p.strobe)",
                                      "self.words.p.strobe")},
}
PARTS = {"cutter": PageSplitter, "window": BurstTracker}


def planted(bug, port):
    return {part: mutated({**PARTS, "port": port}[part], *change)
            for part, change in bug.items()}


def test_reads(tmp_path):
    assert verify(Reads(), tmp_path, mode="bmc", depth=READ_DEPTH, timeout=1500) == "PASS"


def test_writes(tmp_path):
    assert verify(Writes(), tmp_path, mode="bmc", depth=WRITE_DEPTH, timeout=1500) == "PASS"


@pytest.mark.parametrize("proof", [Reads, Writes])
def test_what_is_reached(proof, tmp_path):
    assert verify(proof(), tmp_path, mode="cover", depth=24, timeout=1500) == "PASS"


@pytest.mark.parametrize("bug", READ_BUGS)
def test_reads_bug(bug, tmp_path):
    proof = Reads(**planted(READ_BUGS[bug], RowReadPort))
    assert verify(proof, tmp_path, mode="bmc", depth=READ_DEPTH, timeout=1500) == "FAIL"


@pytest.mark.parametrize("bug", WRITE_BUGS)
def test_writes_bug(bug, tmp_path):
    proof = Writes(**planted(WRITE_BUGS[bug], RowWritePort))
    assert verify(proof, tmp_path, mode="bmc", depth=WRITE_DEPTH, timeout=1500) == "FAIL"


def test_room(tmp_path):
    assert verify(Room(), tmp_path, depth=3) == "PASS"


def test_room_bug(tmp_path):
    bug = mutated(BurstTracker, "fits.eq(space >= 0)", "fits.eq(space >= -1)")
    assert verify(Room(bug), tmp_path, mode="bmc", depth=32) == "FAIL"
