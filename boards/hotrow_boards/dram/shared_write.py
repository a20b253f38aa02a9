"""Write bursts of several masters over one wider port, in order."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.config import log2
from hotrow_rtl.memory.axi import BURST_INCR, DECERR, LENGTH_WIDTH, OKAY, AXI4Write
from hotrow_rtl.memory.axi_arbiter import accept_address
from hotrow_rtl.primitives.fifo import RamFifo
from hotrow_rtl.primitives.round_robin_arbiter import RoundRobinArbiter

from .shared_read import DEPTH


class SharedWrite(wiring.Component):
    """Arbitrate the bursts of several masters by round robin; report written blocks, then respond.

    Beats of a master are merged into wider beats of the port. A burst beyond the memory gets
    DECERR, in order, and writes nothing.

    Parameters
    ----------
    size : int
        Bytes of the memory, which begins at address 0. Bursts must not cross its end.
    block_log2 : int
        log2 of the bytes of a block in `marks`.
    writes : sequence of (AXI4Write, bool)
        Signature of each master, all of the same width, and whether `marks` reports its writes.
    word_bytes : int
        Width of the port, at least that of the masters.
    address_width : int
        Width of the port's addresses.

    Attributes
    ----------
    write_0, ... : In(AXI4Write)
    bus : Out(AXI4Write)
        Responses must be in order.
    marks : Out(stream(range(blocks)))
        Blocks that a reported master wrote, sent after the write and before the burst's response.

    Timing
    ------
    A burst takes 3 cycles plus 1 per beat of the master; a response, 2 cycles plus 1 per block.
    """

    def __init__(self, size, block_log2, writes, word_bytes, address_width):
        self.size, self.block_log2 = size, block_log2
        self.writes = [signature for signature, _ in writes]
        self.reported = [reported for _, reported in writes]
        self.word_bytes, self.address_width = word_bytes, address_width
        super().__init__({
            **{f"write_{number}": In(each) for number, each in enumerate(self.writes)},
            "bus": Out(AXI4Write(address_width=address_width, bus_bytes=word_bytes, id_width=1)),
            "marks": Out(stream.Signature(range(size >> block_log2))),
        })

    def elaborate(self, platform):
        m = Module()
        ports = [getattr(self, f"write_{number}") for number in range(len(self.writes))]
        response = data.StructLayout({
            "port": len(ports), "identity": max(len(port.awid) for port in ports), "in_range": 1,
            "reported": 1, "first_block": self.marks.p.shape(), "last_block": self.marks.p.shape()})
        m.submodules.arbiter = arbiter = RoundRobinArbiter(len(ports))
        m.submodules.queue = queue = RamFifo(response, DEPTH)
        self._forward_writes(m, ports, arbiter, queue)
        self._respond(m, ports, queue)
        return m

    def _forward_writes(self, m, ports, arbiter, queue):
        bus, bus_bytes = self.bus, self.writes[0].bus_bytes
        low, ratio = log2(bus_bytes), self.word_bytes // bus_bytes
        response, address = Signal(queue.shape), Signal(self.address_width)
        beats = Signal(LENGTH_WIDTH)
        part, space, fire = Signal(log2(ratio)), Signal(), Signal()
        last_address = Signal(self.address_width)
        m.d.comb += [
            last_address.eq(address + (beats << low)),
            queue.i.p.eq(response), queue.i.p.first_block.eq(address >> self.block_log2),
            queue.i.p.last_block.eq(last_address >> self.block_log2),
            bus.awaddr.eq(address & ~(self.word_bytes - 1)),
            bus.awlen.eq((beats + address[low:log2(self.word_bytes)]) >> log2(ratio)),
            bus.awsize.eq(log2(self.word_bytes)), bus.awburst.eq(BURST_INCR),
            space.eq(~bus.wvalid | bus.wready),
        ]
        with m.If(bus.wready & bus.wvalid):
            m.d.sync += [bus.wvalid.eq(0), bus.wstrb.eq(0)]

        def capture(number, port):
            return [address.eq(port.awaddr), part.eq(port.awaddr[low:]), beats.eq(port.awlen),
                    response.identity.eq(port.awid), response.reported.eq(self.reported[number]),
                    response.in_range.eq(port.awaddr < self.size)]

        with m.FSM(name="writes"):
            with m.State("ARBITRATE"), m.If(
                    accept_address(m, arbiter, response.port, ports, "aw", capture)):
                m.next = "QUEUE"
            with m.State("QUEUE"):
                m.d.comb += queue.i.valid.eq(1)
                with m.If(queue.i.ready):
                    m.next = "BEATS"
                    with m.If(response.in_range):
                        m.next = "FORWARD"
            with m.State("FORWARD"):
                m.d.comb += bus.awvalid.eq(1)
                with m.If(bus.awready):
                    m.next = "BEATS"
            with m.State("BEATS"):
                for number, port in enumerate(ports):
                    m.d.comb += port.wready.eq(response.port[number] & space)
                    with m.If(response.port[number] & port.wvalid & space):
                        m.d.comb += fire.eq(1)
                        with m.If(response.in_range):
                            m.d.sync += [
                                bus.wdata.word_select(part, 8 * bus_bytes).eq(port.wdata),
                                bus.wstrb.word_select(part, bus_bytes).eq(port.wstrb),
                                bus.wlast.eq(port.wlast),
                                bus.wvalid.eq(port.wlast | (part == ratio - 1)),
                            ]
                        with m.If(port.wlast):
                            m.next = "ARBITRATE"
                with m.If(fire):
                    m.d.sync += part.eq(part + 1)

    def _respond(self, m, ports, queue):
        bus, current = self.bus, queue.o.p
        block, fire = Signal.like(self.marks.p), Signal()
        m.d.comb += self.marks.p.eq(block)
        with m.FSM(name="responses"):
            with m.State("WAIT"):
                m.d.sync += block.eq(current.first_block)
                with m.If(queue.o.valid):
                    m.d.comb += bus.bready.eq(current.in_range)
                    with m.If(~current.in_range):
                        m.next = "RESPOND"
                    with m.Elif(bus.bvalid):
                        m.next = "RESPOND"
                        with m.If(current.reported):
                            m.next = "MARK"
            with m.State("MARK"):
                m.d.comb += self.marks.valid.eq(1)
                with m.If(self.marks.ready):
                    m.d.sync += block.eq(block + 1)
                    with m.If(block == current.last_block):
                        m.next = "RESPOND"
            with m.State("RESPOND"):
                for number, port in enumerate(ports):
                    m.d.comb += [
                        port.bvalid.eq(current.port[number]), port.bid.eq(current.identity),
                        port.bresp.eq(Mux(current.in_range, OKAY, DECERR)),
                    ]
                    with m.If(current.port[number]):
                        m.d.comb += fire.eq(port.bready)
                m.d.comb += queue.o.ready.eq(fire)
                with m.If(fire):
                    m.next = "WAIT"
