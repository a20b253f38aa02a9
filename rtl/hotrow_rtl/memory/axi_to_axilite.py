"""AXI4 masters on a memory that is reached four bytes at a time, over AXI4-Lite."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import log2
from ..primitives.round_robin_arbiter import RoundRobinArbiter
from .axi import DECERR, LENGTH_WIDTH, OKAY, AXI4Lite
from .axi_arbiter import take_turn

DWORD = 4  # bytes


class AXIToAXILite(wiring.Component):
    """Serve bursts, one read and one write at a time, masters in turn.

    Four bytes of which none is strobed are not written. What the slave refuses, or its addresses
    do not reach, is answered by DECERR.

    Parameters
    ----------
    reads, writes : sequence of AXI4Read, of AXI4Write
        The signature of each master, all of one width.
    address_width : int
        Of the slave.

    Members
    -------
    read_0, ... : In(AXI4Read), write_0, ... : In(AXI4Write)
    bus : Out(AXI4Lite(address_width=address_width))

    Timing
    ------
    A burst takes 2 cycles, and for each four bytes of a beat those of the slave and 1.
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
        bus, parts = self.bus, self.reads[0].bus_bytes // DWORD
        m.submodules.read_turns = turns = RoundRobinArbiter(len(ports))
        turn, identity = Signal(len(ports)), Signal(max(len(port.arid) for port in ports))
        address, left = Signal(max(len(port.araddr) for port in ports)), Signal(LENGTH_WIDTH)
        part, word, failed, taken = Signal(range(parts)), Signal(32 * parts), Signal(), Signal()
        m.d.comb += [
            bus.araddr.eq(address | part << log2(DWORD)),
        ]
        for number, port in enumerate(ports):
            m.d.comb += [port.rid.eq(identity), port.rlast.eq(left == 0), port.rdata.eq(word),
                         port.rresp.eq(Mux(failed, DECERR, OKAY))]
            with m.If(turn[number]):
                m.d.comb += taken.eq(port.rready)
        with m.FSM(name="reads"):
            with m.State("CHOOSE"):
                m.d.sync += part.eq(0)
                with m.If(take_turn(m, turns, turn, ports, "ar", lambda number, port: [
                    address.eq(port.araddr), left.eq(port.arlen), identity.eq(port.arid)])):
                    m.next = "ASK"
            with m.State("ASK"):
                beyond = address[self.address_width:].any()
                m.d.comb += bus.arvalid.eq(~beyond)
                m.d.sync += failed.eq(Mux(part == 0, 0, failed) | beyond)
                with m.If(beyond):
                    m.next = "BEAT"
                with m.Elif(bus.arready):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += bus.rready.eq(1)
                with m.If(bus.rvalid):
                    m.d.sync += [word.word_select(part, 32).eq(bus.rdata), part.eq(part + 1),
                                 failed.eq(failed | (bus.rresp != OKAY))]
                    m.next = "ASK"
                    with m.If(part == parts - 1):
                        m.d.sync += part.eq(0)
                        m.next = "BEAT"
            with m.State("BEAT"):
                for number, port in enumerate(ports):
                    m.d.comb += port.rvalid.eq(turn[number])
                with m.If(taken):
                    m.d.sync += [address.eq(address + DWORD * parts), left.eq(left - 1)]
                    m.next = "ASK"
                    with m.If(left == 0):
                        m.next = "CHOOSE"

    def _write(self, m, ports):
        bus, parts = self.bus, self.writes[0].bus_bytes // DWORD
        m.submodules.write_turns = turns = RoundRobinArbiter(len(ports))
        turn, identity = Signal(len(ports)), Signal(max(len(port.awid) for port in ports))
        address = Signal(max(len(port.awaddr) for port in ports))
        part, failed, answered = Signal(range(parts)), Signal(), Signal()
        data, strobes = Signal(32 * parts), Signal(DWORD * parts)
        valid, last, done = Signal(), Signal(), Signal()
        m.d.comb += [
            bus.awaddr.eq(address | part << log2(DWORD)),
            bus.wdata.eq(data.word_select(part, 32)),
            bus.wstrb.eq(strobes.word_select(part, DWORD)),
        ]
        for number, port in enumerate(ports):
            m.d.comb += [port.bid.eq(identity), port.bresp.eq(Mux(failed, DECERR, OKAY)),
                         port.wready.eq(turn[number] & done)]
            with m.If(turn[number]):
                m.d.comb += [data.eq(port.wdata), strobes.eq(port.wstrb), valid.eq(port.wvalid),
                             last.eq(port.wlast), answered.eq(port.bready)]

        def advance():
            """To the next four bytes, of the next beat after the last."""
            m.d.sync += part.eq(part + 1)
            m.next = "GIVE"
            with m.If(part == parts - 1):
                m.d.comb += done.eq(1)
                m.d.sync += [part.eq(0), address.eq(address + DWORD * parts)]
                with m.If(last):
                    m.next = "ANSWER"

        for ready, offered in ((bus.awready, bus.awvalid), (bus.wready, bus.wvalid)):
            with m.If(ready):
                m.d.sync += offered.eq(0)
        with m.FSM(name="writes"):
            with m.State("CHOOSE"):
                m.d.sync += [failed.eq(0), part.eq(0)]
                with m.If(take_turn(m, turns, turn, ports, "aw", lambda number, port: [
                    address.eq(port.awaddr), identity.eq(port.awid)])):
                    m.next = "GIVE"
            with m.State("GIVE"):
                with m.If(valid):
                    with m.If(~bus.wstrb.any()):
                        advance()
                    with m.Elif(address[self.address_width:].any()):
                        m.d.sync += failed.eq(1)
                        advance()
                    with m.Else():
                        m.d.sync += [bus.awvalid.eq(1), bus.wvalid.eq(1)]
                        m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += bus.bready.eq(1)
                with m.If(bus.bvalid):
                    m.d.sync += failed.eq(failed | (bus.bresp != OKAY))
                    advance()
            with m.State("ANSWER"):
                for number, port in enumerate(ports):
                    m.d.comb += port.bvalid.eq(turn[number])
                with m.If(answered):
                    m.next = "CHOOSE"
