"""Writes of several masters over one wider port, in order, told before they are answered."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.config import log2
from hotrow_rtl.memory.axi import BURST_INCR, DECERR, LENGTH_WIDTH, OKAY, AXI4Write
from hotrow_rtl.memory.axi_arbiter import take_turn
from hotrow_rtl.primitives.fifo import RamFifo
from hotrow_rtl.primitives.round_robin_arbiter import RoundRobinArbiter

from .shared_read import DEPTH


class SharedWrite(wiring.Component):
    """Pass bursts on, masters in turn, and answer each when it is in memory and told.

    Beats of a master are joined to those of the port. What lies beyond the memory is answered by
    DECERR, in its turn, and moves nothing.

    Parameters
    ----------
    size : int
        Bytes of the memory; the first has address 0. Bursts do not cross its end.
    block_log2 : int
        log2 of the bytes in which writes are told.
    writes : sequence of (AXI4Write, bool)
        The signature of each master, all of one width, and whether what it writes is told.
    word_bytes : int
        Width of the port, at least that of the masters.
    address_width : int
        Of the port.

    Members
    -------
    write_0, ... : In(AXI4Write)
    bus : Out(AXI4Write)
        Answers in order.
    marks : Out(stream(range(blocks)))
        Blocks that a master wrote: after they are in memory, before its burst is answered.

    Timing
    ------
    A burst takes 3 cycles and one for each of a master's beats; an answer, 2 cycles and one for
    each block.
    """

    def __init__(self, size, block_log2, writes, word_bytes, address_width):
        self.size, self.block_log2 = size, block_log2
        self.writes, self.told = [each for each, _ in writes], [told for _, told in writes]
        self.word_bytes, self.address_width = word_bytes, address_width
        super().__init__({
            **{f"write_{number}": In(each) for number, each in enumerate(self.writes)},
            "bus": Out(AXI4Write(address_width=address_width, bus_bytes=word_bytes, id_width=1)),
            "marks": Out(stream.Signature(range(size >> block_log2))),
        })

    def elaborate(self, platform):
        m = Module()
        ports = [getattr(self, f"write_{number}") for number in range(len(self.writes))]
        answer = data.StructLayout({
            "port": len(ports), "identity": max(len(port.awid) for port in ports), "exists": 1,
            "told": 1, "first": self.marks.p.shape(), "final": self.marks.p.shape()})
        m.submodules.turns = turns = RoundRobinArbiter(len(ports))
        m.submodules.answers = queue = RamFifo(answer, DEPTH)
        self._take(m, ports, turns, queue)
        self._answer(m, ports, queue)
        return m

    def _take(self, m, ports, turns, queue):
        bus, bus_bytes = self.bus, self.writes[0].bus_bytes
        low, ratio = log2(bus_bytes), self.word_bytes // bus_bytes
        answer, address = Signal(queue.shape), Signal(self.address_width)
        beats = Signal(LENGTH_WIDTH)
        part, room, taken = Signal(log2(ratio)), Signal(), Signal()
        final = Signal(self.address_width)
        m.d.comb += [
            final.eq(address + (beats << low)),
            queue.i.p.eq(answer), queue.i.p.first.eq(address >> self.block_log2),
            queue.i.p.final.eq(final >> self.block_log2),
            bus.awaddr.eq(address & ~(self.word_bytes - 1)),
            bus.awlen.eq((beats + address[low:log2(self.word_bytes)]) >> log2(ratio)),
            bus.awsize.eq(log2(self.word_bytes)), bus.awburst.eq(BURST_INCR),
            room.eq(~bus.wvalid | bus.wready),
        ]
        with m.If(bus.wready & bus.wvalid):
            m.d.sync += [bus.wvalid.eq(0), bus.wstrb.eq(0)]
        with m.FSM(name="takes"):
            with m.State("CHOOSE"):
                with m.If(take_turn(m, turns, answer.port, ports, "aw", lambda number, port: [
                    address.eq(port.awaddr), part.eq(port.awaddr[low:]), beats.eq(port.awlen),
                    answer.identity.eq(port.awid), answer.told.eq(self.told[number]),
                    answer.exists.eq(port.awaddr < self.size)])):
                    m.next = "QUEUE"
            with m.State("QUEUE"):
                m.d.comb += queue.i.valid.eq(1)
                with m.If(queue.i.ready):
                    m.next = "BEATS"
                    with m.If(answer.exists):
                        m.next = "PASS"
            with m.State("PASS"):
                m.d.comb += bus.awvalid.eq(1)
                with m.If(bus.awready):
                    m.next = "BEATS"
            with m.State("BEATS"):
                for number, port in enumerate(ports):
                    m.d.comb += port.wready.eq(answer.port[number] & room)
                    with m.If(answer.port[number] & port.wvalid & room):
                        m.d.comb += taken.eq(1)
                        with m.If(answer.exists):
                            m.d.sync += [
                                bus.wdata.word_select(part, 8 * bus_bytes).eq(port.wdata),
                                bus.wstrb.word_select(part, bus_bytes).eq(port.wstrb),
                                bus.wlast.eq(port.wlast),
                                bus.wvalid.eq(port.wlast | (part == ratio - 1)),
                            ]
                        with m.If(port.wlast):
                            m.next = "CHOOSE"
                with m.If(taken):
                    m.d.sync += part.eq(part + 1)

    def _answer(self, m, ports, queue):
        bus, now = self.bus, queue.o.p
        at, answered = Signal.like(self.marks.p), Signal()
        m.d.comb += self.marks.p.eq(at)
        with m.FSM(name="answers"):
            with m.State("WAIT"):
                m.d.sync += at.eq(now.first)
                with m.If(queue.o.valid):
                    m.d.comb += bus.bready.eq(now.exists)
                    with m.If(~now.exists):
                        m.next = "ANSWER"
                    with m.Elif(bus.bvalid):
                        m.next = "ANSWER"
                        with m.If(now.told):
                            m.next = "TELL"
            with m.State("TELL"):
                m.d.comb += self.marks.valid.eq(1)
                with m.If(self.marks.ready):
                    m.d.sync += at.eq(at + 1)
                    with m.If(at == now.final):
                        m.next = "ANSWER"
            with m.State("ANSWER"):
                for number, port in enumerate(ports):
                    m.d.comb += [
                        port.bvalid.eq(now.port[number]), port.bid.eq(now.identity),
                        port.bresp.eq(Mux(now.exists, OKAY, DECERR)),
                    ]
                    with m.If(now.port[number]):
                        m.d.comb += answered.eq(port.bready)
                m.d.comb += queue.o.ready.eq(answered)
                with m.If(answered):
                    m.next = "WAIT"
