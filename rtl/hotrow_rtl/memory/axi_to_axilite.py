"""AXI4 masters on a memory that is accessed four bytes at a time, over AXI4-Lite."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import log2
from ..primitives.round_robin_arbiter import RoundRobinArbiter
from .axi import DECERR, LENGTH_WIDTH, OKAY, AXI4Lite
from .axi_arbiter import accept_address

DWORD = 4  # bytes


class AXIToAXILite(wiring.Component):
    """Serve bursts, one read and one write at a time, masters in round-robin order.

    A double word without a strobe is not written. A burst that the slave answers with an error, or
    whose address the slave does not have, is answered with DECERR.

    Parameters
    ----------
    reads, writes : sequence of AXI4Read, of AXI4Write
        The signature of each master, all of one bus width.
    address_width : int
        Address bits of the slave.

    Attributes
    ----------
    read_0, ... : In(AXI4Read), write_0, ... : In(AXI4Write)
    bus : Out(AXI4Lite(address_width=address_width))

    Timing
    ------
    A burst takes 2 cycles, and for each double word of a beat the slave's latency and 1 cycle.
    """

    def __init__(self, reads, writes, address_width):
        self.reads, self.writes, self.address_width = list(reads), list(writes), address_width
        super().__init__({
            **{f"read_{number}": In(each) for number, each in enumerate(self.reads)},
            **{f"write_{number}": In(each) for number, each in enumerate(self.writes)},
            "bus": Out(AXI4Lite(address_width=address_width)),
        })

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.bus.arprot.eq(0), self.bus.awprot.eq(0)]
        self._read(m, [getattr(self, f"read_{n}") for n in range(len(self.reads))])
        self._write(m, [getattr(self, f"write_{n}") for n in range(len(self.writes))])
        return m

    def _read(self, m, ports):
        bus, dwords = self.bus, self.reads[0].bus_bytes // DWORD
        m.submodules.read_arbiter = arbiter = RoundRobinArbiter(len(ports))
        owner, axi_id = Signal(len(ports)), Signal(max(len(port.arid) for port in ports))
        address = Signal(max(len(port.araddr) for port in ports))
        len_minus_1 = Signal(LENGTH_WIDTH)  # beats of the burst still to send, minus one
        dword, data = Signal(range(dwords)), Signal(32 * dwords)
        failed, ready = Signal(), Signal()
        m.d.comb += [
            bus.araddr.eq(address | dword << log2(DWORD)),
        ]
        for number, port in enumerate(ports):
            m.d.comb += [port.rid.eq(axi_id), port.rlast.eq(len_minus_1 == 0), port.rdata.eq(data),
                         port.rresp.eq(Mux(failed, DECERR, OKAY))]
            with m.If(owner[number]):
                m.d.comb += ready.eq(port.rready)
        with m.FSM(name="reads"):
            with m.State("ARBITRATE"):
                m.d.sync += dword.eq(0)
                with m.If(accept_address(m, arbiter, owner, ports, "ar", lambda number, port: [
                    address.eq(port.araddr), len_minus_1.eq(port.arlen), axi_id.eq(port.arid)])):
                    m.next = "REQUEST"
            with m.State("REQUEST"):
                beyond = address[self.address_width:].any()
                m.d.comb += bus.arvalid.eq(~beyond)
                m.d.sync += failed.eq(Mux(dword == 0, 0, failed) | beyond)
                with m.If(beyond):
                    m.next = "BEAT"
                with m.Elif(bus.arready):
                    m.next = "RESPONSE"
            with m.State("RESPONSE"):
                m.d.comb += bus.rready.eq(1)
                with m.If(bus.rvalid):
                    m.d.sync += [data.word_select(dword, 32).eq(bus.rdata), dword.eq(dword + 1),
                                 failed.eq(failed | (bus.rresp != OKAY))]
                    m.next = "REQUEST"
                    with m.If(dword == dwords - 1):
                        m.d.sync += dword.eq(0)
                        m.next = "BEAT"
            with m.State("BEAT"):
                for number, port in enumerate(ports):
                    m.d.comb += port.rvalid.eq(owner[number])
                with m.If(ready):
                    m.d.sync += [address.eq(address + DWORD * dwords),
                                 len_minus_1.eq(len_minus_1 - 1)]
                    m.next = "REQUEST"
                    with m.If(len_minus_1 == 0):
                        m.next = "ARBITRATE"

    def _write(self, m, ports):
        bus, dwords = self.bus, self.writes[0].bus_bytes // DWORD
        m.submodules.write_arbiter = arbiter = RoundRobinArbiter(len(ports))
        owner, axi_id = Signal(len(ports)), Signal(max(len(port.awid) for port in ports))
        address = Signal(max(len(port.awaddr) for port in ports))
        dword, failed, response_ready = Signal(range(dwords)), Signal(), Signal()
        data, strobes = Signal(32 * dwords), Signal(DWORD * dwords)
        valid, last, done = Signal(), Signal(), Signal()
        m.d.comb += [
            bus.awaddr.eq(address | dword << log2(DWORD)),
            bus.wdata.eq(data.word_select(dword, 32)),
            bus.wstrb.eq(strobes.word_select(dword, DWORD)),
        ]
        for number, port in enumerate(ports):
            m.d.comb += [port.bid.eq(axi_id), port.bresp.eq(Mux(failed, DECERR, OKAY)),
                         port.wready.eq(owner[number] & done)]
            with m.If(owner[number]):
                m.d.comb += [data.eq(port.wdata), strobes.eq(port.wstrb), valid.eq(port.wvalid),
                             last.eq(port.wlast), response_ready.eq(port.bready)]

        def next_dword():
            """Select the next double word, or the first of the next beat."""
            m.d.sync += dword.eq(dword + 1)
            m.next = "REQUEST"
            with m.If(dword == dwords - 1):
                m.d.comb += done.eq(1)
                m.d.sync += [dword.eq(0), address.eq(address + DWORD * dwords)]
                with m.If(last):
                    m.next = "END"

        for channel_ready, channel_valid in (
                (bus.awready, bus.awvalid), (bus.wready, bus.wvalid)):
            with m.If(channel_ready):
                m.d.sync += channel_valid.eq(0)
        with m.FSM(name="writes"):
            with m.State("ARBITRATE"):
                m.d.sync += [failed.eq(0), dword.eq(0)]
                with m.If(accept_address(m, arbiter, owner, ports, "aw", lambda number, port: [
                    address.eq(port.awaddr), axi_id.eq(port.awid)])):
                    m.next = "REQUEST"
            with m.State("REQUEST"), m.If(valid):
                with m.If(~bus.wstrb.any()):
                    next_dword()
                with m.Elif(address[self.address_width:].any()):
                    m.d.sync += failed.eq(1)
                    next_dword()
                with m.Else():
                    m.d.sync += [bus.awvalid.eq(1), bus.wvalid.eq(1)]
                    m.next = "RESPONSE"
            with m.State("RESPONSE"):
                m.d.comb += bus.bready.eq(1)
                with m.If(bus.bvalid):
                    m.d.sync += failed.eq(failed | (bus.bresp != OKAY))
                    next_dword()
            with m.State("END"):
                for number, port in enumerate(ports):
                    m.d.comb += port.bvalid.eq(owner[number])
                with m.If(response_ready):
                    m.next = "ARBITRATE"
