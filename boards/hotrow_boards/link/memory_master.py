"""Access memory over AXI4 from streams of bytes."""

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.config import log2
from hotrow_rtl.memory.axi import BURST_INCR, OKAY, AXI4Read, AXI4Write

from .layouts import memory_request


class MemoryMaster(wiring.Component):
    """Read or write any range of bytes, one bus word a burst.

    Parameters
    ----------
    address_width, bus_bytes : int

    Attributes
    ----------
    requests : In(stream(memory_request))
        `length` is at least 1; accepted with the response of the last byte.
    i : In(stream(8))
        Bytes to write.
    o : Out(stream(8))
        Bytes read.
    refused : Out(1)
        An access of the request got an error response; valid when the request is accepted.
    read_bus : Out(AXI4Read(..., id_width=1))
    write_bus : Out(AXI4Write(..., id_width=1))

    Timing
    ------
    A byte a cycle, plus the latency of the memory and 2 cycles per word.
    """

    def __init__(self, address_width, bus_bytes):
        self.address_width, self.bus_bytes = address_width, bus_bytes
        bus = {"address_width": address_width, "bus_bytes": bus_bytes, "id_width": 1}
        super().__init__({
            "requests": In(stream.Signature(memory_request)),
            "i": In(stream.Signature(8)),
            "o": Out(stream.Signature(8)),
            "refused": Out(1),
            "read_bus": Out(AXI4Read(**bus)),
            "write_bus": Out(AXI4Write(**bus)),
        })

    def elaborate(self, platform):
        m = Module()
        request, reads, writes = self.requests, self.read_bus, self.write_bus
        lanes = log2(self.bus_bytes)
        address, bytes_left = Signal(32), Signal(16)
        word, strobe = Signal(8 * self.bus_bytes), Signal(self.bus_bytes)
        lane, last_lane, aligned = Signal(lanes), Signal(), Signal(32)
        m.d.comb += [
            lane.eq(address[:lanes]),
            last_lane.eq(lane.all()),
            aligned.eq(Cat(Const(0, lanes), address[lanes:])),
            reads.araddr.eq(aligned), writes.awaddr.eq(aligned),
            reads.arsize.eq(lanes), writes.awsize.eq(lanes),
            reads.arburst.eq(BURST_INCR), writes.awburst.eq(BURST_INCR),
            writes.wdata.eq(word), writes.wstrb.eq(strobe), writes.wlast.eq(1),
            self.o.p.eq(word.word_select(lane, 8)),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [address.eq(request.p.address), bytes_left.eq(request.p.length),
                             strobe.eq(0), self.refused.eq(0)]
                with m.If(request.valid):
                    m.next = "READ"
                    with m.If(request.p.write):
                        m.next = "COLLECT"
            with m.State("READ"):
                m.d.comb += reads.arvalid.eq(1)
                with m.If(reads.arready):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += reads.rready.eq(1)
                with m.If(reads.rvalid):
                    m.d.sync += [word.eq(reads.rdata),
                                 self.refused.eq(self.refused | (reads.rresp != OKAY))]
                    m.next = "DELIVER"
            with m.State("DELIVER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += [address.eq(address + 1), bytes_left.eq(bytes_left - 1)]
                    with m.If(bytes_left == 1):
                        m.next = "DONE"
                    with m.Elif(last_lane):
                        m.next = "READ"
            with m.State("COLLECT"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid):
                    m.d.sync += [word.word_select(lane, 8).eq(self.i.p),
                                 strobe.bit_select(lane, 1).eq(1), bytes_left.eq(bytes_left - 1)]
                    with m.If(last_lane | (bytes_left == 1)):
                        m.d.sync += [writes.awvalid.eq(1), writes.wvalid.eq(1)]
                        m.next = "WRITE"
                    with m.Else():
                        m.d.sync += address.eq(address + 1)
            with m.State("WRITE"):
                for valid, ready in ((writes.awvalid, writes.awready),
                                     (writes.wvalid, writes.wready)):
                    with m.If(ready):
                        m.d.sync += valid.eq(0)
                m.d.comb += writes.bready.eq(1)
                with m.If(writes.bvalid):
                    m.d.sync += [address.eq(address + 1), strobe.eq(0),
                                 self.refused.eq(self.refused | (writes.bresp != OKAY))]
                    m.next = "COLLECT"
                    with m.If(bytes_left == 0):
                        m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += request.ready.eq(1)
                with m.If(request.valid):
                    m.next = "IDLE"
        return m
