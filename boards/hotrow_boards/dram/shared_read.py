"""Read bursts of several masters over one wider port, in order."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.config import log2
from hotrow_rtl.memory.axi import BURST_INCR, DECERR, LENGTH_WIDTH, OKAY, AXI4Read
from hotrow_rtl.memory.axi_arbiter import accept_address
from hotrow_rtl.primitives.fifo import RamFifo
from hotrow_rtl.primitives.round_robin_arbiter import RoundRobinArbiter

DEPTH = 16  # outstanding bursts


class SharedRead(wiring.Component):
    """Arbitrate the bursts of several masters by round robin, and distribute the responses.

    Beats of the port are split into the masters' narrower beats. A burst beyond the memory gets
    DECERR, in order, without an access.

    Parameters
    ----------
    size : int
        Bytes of the memory, which begins at address 0. Bursts must not cross its end.
    reads : sequence of AXI4Read
        Signature of each master, all of the same width.
    word_bytes : int
        Width of the port, at least that of the masters.
    address_width : int
        Width of the port's addresses.

    Attributes
    ----------
    read_0, ... : In(AXI4Read)
    bus : Out(AXI4Read)
        Responses must be in order.

    Timing
    ------
    A request takes 3 cycles, 2 if it is beyond the memory, and is at the port 2 cycles after its
    address. A response takes a cycle per beat of the master.
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
        request_layout = data.StructLayout({
            "port": len(ports), "identity": max(len(port.arid) for port in ports),
            "beats_left": LENGTH_WIDTH, "part": log2(ratio), "in_range": 1})
        m.submodules.arbiter = arbiter = RoundRobinArbiter(len(ports))
        m.submodules.queue = queue = RamFifo(request_layout, DEPTH)
        self._forward_requests(m, ports, arbiter, queue, low, ratio)
        self._return_data(m, ports, queue, 8 * bus_bytes, ratio)
        return m

    def _forward_requests(self, m, ports, arbiter, queue, low, ratio):
        bus, request = self.bus, Signal(queue.shape)
        address = Signal(max(len(port.araddr) for port in ports))
        m.d.comb += [
            queue.i.p.eq(request),
            bus.araddr.eq(address & ~(self.word_bytes - 1)),
            bus.arlen.eq((request.beats_left + request.part) >> log2(ratio)),
            bus.arsize.eq(log2(self.word_bytes)), bus.arburst.eq(BURST_INCR),
        ]

        def capture(number, port):
            return [address.eq(port.araddr), request.identity.eq(port.arid),
                    request.beats_left.eq(port.arlen), request.part.eq(port.araddr[low:]),
                    request.in_range.eq(port.araddr < self.size)]

        with m.FSM(name="requests"):
            with m.State("ARBITRATE"), m.If(
                    accept_address(m, arbiter, request.port, ports, "ar", capture)):
                m.next = "QUEUE"
            with m.State("QUEUE"):
                m.d.comb += queue.i.valid.eq(1)
                with m.If(queue.i.ready):
                    m.next = "ARBITRATE"
                    with m.If(request.in_range):
                        m.next = "FORWARD"
            with m.State("FORWARD"):
                m.d.comb += bus.arvalid.eq(1)
                with m.If(bus.arready):
                    m.next = "ARBITRATE"

    def _return_data(self, m, ports, queue, width, ratio):
        bus, current = self.bus, Signal(queue.shape)
        active, valid, fire, done = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            queue.o.ready.eq(~active | done),
            valid.eq(active & (bus.rvalid | ~current.in_range)),
            done.eq(fire & (current.beats_left == 0)),
            bus.rready.eq(fire & current.in_range
                          & ((current.beats_left == 0) | (current.part == ratio - 1))),
        ]
        for number, port in enumerate(ports):
            m.d.comb += [
                port.rvalid.eq(valid & current.port[number]),
                port.rid.eq(current.identity), port.rlast.eq(current.beats_left == 0),
                port.rresp.eq(Mux(current.in_range, OKAY, DECERR)),
                port.rdata.eq(Mux(current.in_range, bus.rdata.word_select(current.part, width), 0)),
            ]
            with m.If(current.port[number]):
                m.d.comb += fire.eq(valid & port.rready)
        with m.If(fire):
            m.d.sync += [current.part.eq(current.part + 1),
                         current.beats_left.eq(current.beats_left - 1)]
        with m.If(queue.o.ready):
            m.d.sync += [active.eq(queue.o.valid), current.eq(queue.o.p)]
