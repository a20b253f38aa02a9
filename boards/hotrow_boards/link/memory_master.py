"""Access memory over AXI4 from streams of bytes."""

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.config import log2
from hotrow_rtl.memory.axi import BURST_INCR, OKAY, AXI4Read, AXI4Write
from hotrow_rtl.memory.watchdog import Watchdog

from .layouts import memory_request

TIMEOUT = 1 << 20  # cycles of an access: 21 to 42 ms on the boards


class MemoryMaster(wiring.Component):
    """Read or write any range of bytes, one bus word a burst.

    An access without an answer for `timeout` cycles ends its request as refused, and so do further
    requests, without an access, until the answer comes: the registers stay within the host's reach.

    Parameters
    ----------
    address_width, bus_bytes : int
    timeout : int

    Attributes
    ----------
    requests : In(stream(memory_request))
        `length` is at least 1; accepted with the response of the last byte.
    i : In(stream(8))
        Bytes to write.
    o : Out(stream(8))
        Bytes read.
    refused : Out(1)
        An access of the request got an error response, or none; valid when the request is
        accepted.
    read_bus : Out(AXI4Read(..., id_width=1))
    write_bus : Out(AXI4Write(..., id_width=1))

    Timing
    ------
    A byte a cycle, plus the latency of the memory and 1 cycle per word, and 2 cycles per request.
    """

    def __init__(self, address_width, bus_bytes, timeout=TIMEOUT):
        self.address_width, self.bus_bytes, self.timeout = address_width, bus_bytes, timeout
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
        m.submodules.watchdog = watchdog = Watchdog()
        owed, lost = Signal(), Signal()  # an access has no answer; the request does not wait for it
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
            reads.rready.eq(1), writes.bready.eq(1),
            watchdog.timeout.eq(self.timeout),
            watchdog.waiting.eq(owed),
            watchdog.restart.eq(~owed),
        ]
        for valid, ready in ((reads.arvalid, reads.arready), (writes.awvalid, writes.awready),
                             (writes.wvalid, writes.wready)):
            with m.If(ready):
                m.d.sync += valid.eq(0)
        with m.If(reads.rvalid | writes.bvalid):
            m.d.sync += owed.eq(0)

        def read():
            m.d.sync += [reads.arvalid.eq(1), owed.eq(1)]
            m.next = "READ"

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [bytes_left.eq(request.p.length), lost.eq(owed), self.refused.eq(owed)]
                with m.If(~owed):
                    m.d.sync += [address.eq(request.p.address), strobe.eq(0)]
                with m.If(request.valid & request.p.write):
                    m.next = "COLLECT"
                with m.Elif(request.valid & owed):
                    m.next = "DELIVER"
                with m.Elif(request.valid):
                    read()
            with m.State("READ"):
                with m.If(reads.rvalid):
                    m.d.sync += [word.eq(reads.rdata),
                                 self.refused.eq(self.refused | (reads.rresp != OKAY))]
                    m.next = "DELIVER"
                with m.Elif(watchdog.stopped):
                    m.d.sync += [lost.eq(1), self.refused.eq(1)]
                    m.next = "DELIVER"
            with m.State("DELIVER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += bytes_left.eq(bytes_left - 1)
                    with m.If(~lost):
                        m.d.sync += address.eq(address + 1)
                    with m.If(bytes_left == 1):
                        m.next = "DONE"
                    with m.Elif(last_lane & ~lost):
                        read()
            with m.State("COLLECT"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid):
                    m.d.sync += bytes_left.eq(bytes_left - 1)
                    with m.If(lost), m.If(bytes_left == 1):
                        m.next = "DONE"
                    with m.Else():
                        m.d.sync += [word.word_select(lane, 8).eq(self.i.p),
                                     strobe.bit_select(lane, 1).eq(1)]
                        with m.If(last_lane | (bytes_left == 1)):
                            m.d.sync += [writes.awvalid.eq(1), writes.wvalid.eq(1), owed.eq(1)]
                            m.next = "WRITE"
                        with m.Else():
                            m.d.sync += address.eq(address + 1)
            with m.State("WRITE"):
                with m.If(writes.bvalid):
                    m.d.sync += [address.eq(address + 1), strobe.eq(0),
                                 self.refused.eq(self.refused | (writes.bresp != OKAY))]
                with m.Elif(watchdog.stopped):
                    m.d.sync += [lost.eq(1), self.refused.eq(1)]
                with m.If(writes.bvalid | watchdog.stopped):
                    m.next = "COLLECT"
                    with m.If(bytes_left == 0):
                        m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += request.ready.eq(1)
                with m.If(request.valid):
                    m.next = "IDLE"
        return m
