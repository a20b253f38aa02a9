"""Block RAM as the memory of a card, with any number of AXI4 ports."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.config import log2
from hotrow_rtl.memory.axi import DECERR, LENGTH_WIDTH, OKAY
from hotrow_rtl.memory.axi_arbiter import accept_address
from hotrow_rtl.primitives.ram import Ram
from hotrow_rtl.primitives.round_robin_arbiter import RoundRobinArbiter


class BlockMemory(wiring.Component):
    """Serve one read burst and one write burst at a time; ports take turns by round robin.

    A beat beyond the memory gets DECERR and transfers no data.

    Parameters
    ----------
    size : int
        Bytes, a power of two; the memory begins at address 0.
    block_log2 : int
        log2 of the bytes of a block in `marks`.
    reads, writes : sequence of (AXI4Read or AXI4Write, bool)
        Signature of each port, seen from its master; for a write port, whether `marks` reports
        its writes.

    Attributes
    ----------
    read_0, ... : In(AXI4Read), write_0, ... : In(AXI4Write)
    marks : Out(stream(range(blocks)))
        Blocks that a reported port wrote, sent before the response of its burst.

    Timing
    ------
    A read takes 1 cycle plus 2 per beat. A write takes 2 cycles plus 1 per beat, and 1 per block
    that is reported, or 1 if none is.
    """

    def __init__(self, size, block_log2, reads, writes):
        if size & (size - 1):
            raise ValueError(f"size must be a power of two, not {size}")
        self.size, self.block_log2 = size, block_log2
        self.reads, self.writes = list(reads), [signature for signature, _ in writes]
        self.reported = [reported for _, reported in writes]
        super().__init__({
            **{f"read_{number}": In(each) for number, each in enumerate(self.reads)},
            **{f"write_{number}": In(each) for number, each in enumerate(self.writes)},
            "marks": Out(stream.Signature(range(size >> block_log2))),
        })

    def elaborate(self, platform):
        m = Module()
        bus_bytes = self.reads[0].bus_bytes
        m.submodules.rows = rows = Ram(8 * bus_bytes, self.size // bus_bytes, parts=bus_bytes)
        self._read(m, rows, [getattr(self, f"read_{n}") for n in range(len(self.reads))])
        self._write(m, rows, [getattr(self, f"write_{n}") for n in range(len(self.writes))])
        return m

    def _read(self, m, rows, ports):
        m.submodules.read_arbiter = arbiter = RoundRobinArbiter(len(ports))
        grant, identity = Signal(len(ports)), Signal(max(len(port.arid) for port in ports))
        address = Signal(self._address_width(ports, "araddr"))
        beats_left = Signal(LENGTH_WIDTH)
        in_range, accepted = Signal(), Signal()
        m.d.comb += [
            in_range.eq(address < self.size),
            rows.read_address.eq(address >> log2(rows.parts)),
        ]
        for number, port in enumerate(ports):
            m.d.comb += [
                port.rid.eq(identity), port.rlast.eq(beats_left == 0),
                port.rresp.eq(Mux(in_range, OKAY, DECERR)),
                port.rdata.eq(Mux(in_range, rows.read_data, 0)),
            ]
            with m.If(grant[number]):
                m.d.comb += accepted.eq(port.rready)
        with m.FSM(name="reads"):
            with m.State("ARBITRATE"), m.If(accept_address(
                    m, arbiter, grant, ports, "ar", lambda number, port: [
                        address.eq(port.araddr), beats_left.eq(port.arlen),
                        identity.eq(port.arid)])):
                m.next = "FETCH"
            with m.State("FETCH"):
                m.next = "BEAT"
            with m.State("BEAT"):
                m.d.comb += rows.read_enable.eq(0)
                for number, port in enumerate(ports):
                    m.d.comb += port.rvalid.eq(grant[number])
                with m.If(accepted):
                    m.d.sync += [address.eq(address + rows.parts),
                                 beats_left.eq(beats_left - 1)]
                    m.next = "FETCH"
                    with m.If(beats_left == 0):
                        m.next = "ARBITRATE"

    def _write(self, m, rows, ports):
        m.submodules.write_arbiter = arbiter = RoundRobinArbiter(len(ports))
        grant, identity = Signal(len(ports)), Signal(max(len(port.awid) for port in ports))
        address = Signal(self._address_width(ports, "awaddr"))
        in_range, failed, last, responded = Signal(), Signal(), Signal(), Signal()
        block, last_block = Signal.like(self.marks.p), Signal.like(self.marks.p)
        reported = Signal()
        m.d.comb += [
            in_range.eq(address < self.size),
            rows.write_address.eq(address >> log2(rows.parts)),
            self.marks.p.eq(block),
        ]
        with m.FSM(name="writes"):
            with m.State("ARBITRATE"):
                m.d.sync += failed.eq(0)
                with m.If(accept_address(m, arbiter, grant, ports, "aw", lambda number, port: [
                    address.eq(port.awaddr), identity.eq(port.awid),
                    block.eq(port.awaddr >> self.block_log2),
                    reported.eq(self.reported[number])])):
                    m.next = "BEATS"
            with m.State("BEATS"):
                for number, port in enumerate(ports):
                    with m.If(grant[number]):
                        m.d.comb += [
                            port.wready.eq(1),
                            rows.write_data.eq(port.wdata),
                            rows.write_enable.eq(
                                Mux(port.wvalid & in_range, port.wstrb, 0)),
                            last.eq(port.wvalid & port.wlast),
                        ]
                        with m.If(port.wvalid):
                            m.d.sync += [address.eq(address + rows.parts),
                                         last_block.eq(address >> self.block_log2),
                                         failed.eq(failed | ~in_range)]
                with m.If(last):
                    m.next = "MARK"
            with m.State("MARK"):
                m.d.comb += self.marks.valid.eq(reported & ~failed)
                with m.If(~self.marks.valid):
                    m.next = "RESPOND"
                with m.Elif(self.marks.ready):
                    m.d.sync += block.eq(block + 1)
                    with m.If(block == last_block):
                        m.next = "RESPOND"
            with m.State("RESPOND"):
                for number, port in enumerate(ports):
                    m.d.comb += [
                        port.bvalid.eq(grant[number]), port.bid.eq(identity),
                        port.bresp.eq(Mux(failed, DECERR, OKAY)),
                    ]
                    with m.If(grant[number]):
                        m.d.comb += responded.eq(port.bready)
                with m.If(responded):
                    m.next = "ARBITRATE"

    @staticmethod
    def _address_width(ports, name):
        return max(len(getattr(port, name)) for port in ports)
