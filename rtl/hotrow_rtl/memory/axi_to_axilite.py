"""AXI4 masters on a memory that is accessed four bytes at a time, over AXI4-Lite."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import log2
from ..primitives.round_robin_arbiter import RoundRobinArbiter
from .axi import DECERR, LENGTH_WIDTH, OKAY, AXI4Lite
from .axi_arbiter import accept_address

DWORD = 4  # bytes
ANSWER_CYCLES = 1 << 23  # 67 ms at 125 MHz: longer than a root complex waits for a completion


class AXIToAXILite(wiring.Component):
    """Serve bursts, one read and one write at a time, masters in round-robin order.

    A double word without a strobe is not written. A burst that the slave answers with an error, or
    whose address the slave does not have, is answered with DECERR.

    Without an answer for `answer_cycles` the burst ends with DECERR. Later bursts of that direction
    end with DECERR, too, until the late answer arrives: nothing distinguishes it from the answer
    of a later request.

    Parameters
    ----------
    reads, writes : sequence of AXI4Read, of AXI4Write
        The signature of each master, all of one bus width.
    address_width : int
        Address bits of the slave.
    answer_cycles : int
        Cycles that the slave may take for a double word, a power of two.

    Attributes
    ----------
    read_0, ... : In(AXI4Read), write_0, ... : In(AXI4Write)
    bus : Out(AXI4Lite(address_width=address_width))

    Timing
    ------
    A burst takes 2 cycles, and for each double word of a beat the slave's latency and 1 cycle.
    """

    def __init__(self, reads, writes, address_width, answer_cycles=ANSWER_CYCLES):
        self.reads, self.writes, self.address_width = list(reads), list(writes), address_width
        self.answer_cycles = answer_cycles
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
        # After a time-out the request stays valid until its late answer has arrived.
        late, unaccepted, kept, expired = Signal(), Signal(), Signal.like(bus.araddr), Signal()
        with m.If(~late):
            m.d.comb += bus.araddr.eq(address | dword << log2(DWORD))
        with m.Else():
            m.d.comb += [bus.araddr.eq(kept), bus.arvalid.eq(unaccepted), bus.rready.eq(1)]
            with m.If(bus.arready):
                m.d.sync += unaccepted.eq(0)
            with m.If(bus.rvalid):
                m.d.sync += late.eq(0)
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
                refused = late | address[self.address_width:].any()
                with m.If(~refused):
                    m.d.comb += bus.arvalid.eq(1)
                m.d.sync += failed.eq(Mux(dword == 0, 0, failed) | refused)
                with m.If(refused):
                    m.d.sync += dword.eq(0)
                    m.next = "BEAT"
                with m.Elif(bus.arready):
                    m.next = "RESPONSE"
                with m.Elif(expired):
                    m.d.sync += [late.eq(1), unaccepted.eq(1), kept.eq(bus.araddr)]
            with m.State("RESPONSE"):
                m.d.comb += bus.rready.eq(1)
                with m.If(bus.rvalid):
                    m.d.sync += [data.word_select(dword, 32).eq(bus.rdata), dword.eq(dword + 1),
                                 failed.eq(failed | (bus.rresp != OKAY))]
                    m.next = "REQUEST"
                    with m.If(dword == dwords - 1):
                        m.d.sync += dword.eq(0)
                        m.next = "BEAT"
                with m.Elif(expired):
                    m.d.sync += late.eq(1)
                    m.next = "REQUEST"
            with m.State("BEAT"):
                for number, port in enumerate(ports):
                    m.d.comb += port.rvalid.eq(owner[number])
                with m.If(ready):
                    m.d.sync += [address.eq(address + DWORD * dwords),
                                 len_minus_1.eq(len_minus_1 - 1)]
                    m.next = "REQUEST"
                    with m.If(len_minus_1 == 0):
                        m.next = "ARBITRATE"
        self._expire(m, bus.arvalid & ~late, bus.rvalid, expired)

    def _expire(self, m, asked, answered, expired):
        """Raise `expired` in every cycle from `answer_cycles` after a request to its answer."""
        waiting, cycles = Signal(), Signal(range(self.answer_cycles + 1))
        m.d.comb += expired.eq(cycles[-1])
        with m.If(answered):
            m.d.sync += waiting.eq(0)
        with m.Elif(asked):
            m.d.sync += waiting.eq(1)
        with m.If(answered | ~waiting):
            m.d.sync += cycles.eq(0)
        with m.Elif(~expired):
            m.d.sync += cycles.eq(cycles + 1)

    def _write(self, m, ports):
        bus, dwords = self.bus, self.writes[0].bus_bytes // DWORD
        m.submodules.write_arbiter = arbiter = RoundRobinArbiter(len(ports))
        owner, axi_id = Signal(len(ports)), Signal(max(len(port.awid) for port in ports))
        address = Signal(max(len(port.awaddr) for port in ports))
        dword, failed, response_ready = Signal(range(dwords)), Signal(), Signal()
        data, strobes = Signal(32 * dwords), Signal(DWORD * dwords)
        valid, last, done = Signal(), Signal(), Signal()
        late, expired = Signal(), Signal()
        strobe = strobes.word_select(dword, DWORD)
        with m.If(late):
            m.d.comb += bus.bready.eq(1)
            with m.If(bus.bvalid):
                m.d.sync += late.eq(0)
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
                with m.If(~strobe.any()):
                    next_dword()
                with m.Elif(late | address[self.address_width:].any()):
                    m.d.sync += failed.eq(1)
                    next_dword()
                with m.Else():
                    m.d.sync += [
                        bus.awvalid.eq(1), bus.wvalid.eq(1),
                        bus.awaddr.eq(address | dword << log2(DWORD)),
                        bus.wdata.eq(data.word_select(dword, 32)), bus.wstrb.eq(strobe),
                    ]
                    m.next = "RESPONSE"
            with m.State("RESPONSE"):
                m.d.comb += bus.bready.eq(1)
                with m.If(bus.bvalid):
                    m.d.sync += failed.eq(failed | (bus.bresp != OKAY))
                    next_dword()
                with m.Elif(expired):
                    m.d.sync += [failed.eq(1), late.eq(1)]
                    next_dword()
            with m.State("END"):
                for number, port in enumerate(ports):
                    m.d.comb += port.bvalid.eq(owner[number])
                with m.If(response_ready):
                    m.next = "ARBITRATE"
        self._expire(m, bus.awvalid | bus.wvalid, bus.bvalid, expired)
