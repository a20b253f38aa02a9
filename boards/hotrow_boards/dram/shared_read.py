"""Reads of several masters over one wider port, in order."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.config import log2
from hotrow_rtl.memory.axi import BURST_INCR, DECERR, LENGTH_WIDTH, OKAY, AXI4Read
from hotrow_rtl.memory.axi_arbiter import take_turn
from hotrow_rtl.primitives.fifo import RamFifo
from hotrow_rtl.primitives.round_robin_arbiter import RoundRobinArbiter

DEPTH = 16  # bursts under way


class SharedRead(wiring.Component):
    """Pass bursts on, masters in turn, and deal out what comes back.

    A beat of the port holds several of a master, which get them one after the other. What lies
    beyond the memory is answered by DECERR, in its turn, and goes nowhere.

    Parameters
    ----------
    size : int
        Bytes of the memory; the first has address 0. Bursts do not cross its end.
    reads : sequence of AXI4Read
        The signature of each master, all of one width.
    word_bytes : int
        Width of the port, at least that of the masters.
    address_width : int
        Of the port.

    Members
    -------
    read_0, ... : In(AXI4Read)
    bus : Out(AXI4Read)
        Answers in order.

    Timing
    ------
    A request takes 2 cycles, and 3 until it is at the port. A burst of answers takes a cycle more
    than its beats, of each port's word as many as there are masters' in it.
    """

    def __init__(self, size, reads, word_bytes, address_width):
        self.size, self.reads = size, list(reads)
        self.word_bytes, self.address_width = word_bytes, address_width
        super().__init__({
            **{f"read_{number}": In(each) for number, each in enumerate(self.reads)},
            "bus": Out(AXI4Read(address_width=address_width, bus_bytes=word_bytes, id_width=1)),
        })

    def elaborate(self, platform):
        m = Module()
        ports = [getattr(self, f"read_{number}") for number in range(len(self.reads))]
        bus_bytes = self.reads[0].bus_bytes
        low, ratio = log2(bus_bytes), self.word_bytes // bus_bytes
        asked = data.StructLayout({
            "port": len(ports), "identity": max(len(port.arid) for port in ports),
            "last": LENGTH_WIDTH, "part": log2(ratio), "exists": 1})
        m.submodules.turns = turns = RoundRobinArbiter(len(ports))
        m.submodules.asked = queue = RamFifo(asked, DEPTH)
        self._ask(m, ports, turns, queue, low, ratio)
        self._answer(m, ports, queue, 8 * bus_bytes, ratio)
        return m

    def _ask(self, m, ports, turns, queue, low, ratio):
        bus, request = self.bus, Signal(queue.shape)
        address = Signal(max(len(port.araddr) for port in ports))
        m.d.comb += [
            queue.i.p.eq(request),
            bus.araddr.eq(address & ~(self.word_bytes - 1)),
            bus.arlen.eq((request.last + request.part) >> log2(ratio)),
            bus.arsize.eq(log2(self.word_bytes)), bus.arburst.eq(BURST_INCR),
        ]
        with m.FSM(name="asks"):
            with m.State("CHOOSE"):
                with m.If(take_turn(m, turns, request.port, ports, "ar", lambda number, port: [
                    address.eq(port.araddr), request.identity.eq(port.arid),
                    request.last.eq(port.arlen), request.part.eq(port.araddr[low:]),
                    request.exists.eq(port.araddr < self.size)])):
                    m.next = "QUEUE"
            with m.State("QUEUE"):
                m.d.comb += queue.i.valid.eq(1)
                with m.If(queue.i.ready):
                    m.next = "CHOOSE"
                    with m.If(request.exists):
                        m.next = "PASS"
            with m.State("PASS"):
                m.d.comb += bus.arvalid.eq(1)
                with m.If(bus.arready):
                    m.next = "CHOOSE"

    def _answer(self, m, ports, queue, width, ratio):
        bus, now = self.bus, Signal(queue.shape)
        working, valid, taken, ended = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            queue.o.ready.eq(~working | ended),
            valid.eq(working & (bus.rvalid | ~now.exists)),
            ended.eq(taken & (now.last == 0)),
            bus.rready.eq(taken & now.exists & ((now.last == 0) | (now.part == ratio - 1))),
        ]
        for number, port in enumerate(ports):
            m.d.comb += [
                port.rvalid.eq(valid & now.port[number]),
                port.rid.eq(now.identity), port.rlast.eq(now.last == 0),
                port.rresp.eq(Mux(now.exists, OKAY, DECERR)),
                port.rdata.eq(Mux(now.exists, bus.rdata.word_select(now.part, width), 0)),
            ]
            with m.If(now.port[number]):
                m.d.comb += taken.eq(valid & port.rready)
        with m.If(taken):
            m.d.sync += [now.part.eq(now.part + 1), now.last.eq(now.last - 1)]
        with m.If(queue.o.ready):
            m.d.sync += [working.eq(queue.o.valid), now.eq(queue.o.p)]
