"""Block RAM as the memory of a card, behind as many AXI4 ports as it has."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.config import log2
from hotrow_rtl.memory.axi import DECERR, LENGTH_WIDTH, OKAY
from hotrow_rtl.memory.axi_arbiter import take_turn
from hotrow_rtl.primitives.ram import Ram
from hotrow_rtl.primitives.round_robin_arbiter import RoundRobin


class BlockMemory(wiring.Component):
    """Serve bursts, one read and one write at a time, ports in turn.

    What lies beyond the memory is answered by DECERR and moves nothing.

    Parameters
    ----------
    size : int
        Bytes, a power of two; the first has address 0.
    block_log2 : int
        log2 of the bytes in which writes are told.
    reads, writes : sequence of (AXI4Read or AXI4Write, bool)
        The master's signature of each port; of those that write, whether that is told.

    Members
    -------
    read_0, ... : In(AXI4Read), write_0, ... : In(AXI4Write)
    marks : Out(stream(range(blocks)))
        Blocks that a port wrote, before its burst is answered.

    Timing
    ------
    A read takes 2 cycles and 2 for each beat, a write 2 and 1 for each beat and each block.
    """

    def __init__(self, size, block_log2, reads, writes):
        if size & (size - 1):
            raise ValueError(f"size must be a power of two, not {size}")
        self.size, self.block_log2 = size, block_log2
        self.reads, self.writes = list(reads), [signature for signature, _ in writes]
        self.told = [told for _, told in writes]
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
        m.submodules.read_turns = turns = RoundRobin(len(ports))
        turn, identity = Signal(len(ports)), Signal(max(len(port.arid) for port in ports))
        address, left = Signal(self._address_width(ports, "araddr")), Signal(LENGTH_WIDTH)
        exists, taken = Signal(), Signal()
        m.d.comb += [
            exists.eq(address < self.size),
            rows.read_address.eq(address >> log2(rows.parts)),
        ]
        for number, port in enumerate(ports):
            m.d.comb += [
                port.rid.eq(identity), port.rlast.eq(left == 0),
                port.rresp.eq(Mux(exists, OKAY, DECERR)),
                port.rdata.eq(Mux(exists, rows.read_data, 0)),
            ]
            with m.If(turn[number]):
                m.d.comb += taken.eq(port.rready)
        with m.FSM(name="reads"):
            with m.State("CHOOSE"):
                with m.If(take_turn(m, turns, turn, ports, "ar", lambda number, port: [
                    address.eq(port.araddr), left.eq(port.arlen), identity.eq(port.arid)])):
                    m.next = "FETCH"
            with m.State("FETCH"):
                m.next = "BEAT"
            with m.State("BEAT"):
                m.d.comb += rows.read_enable.eq(0)
                for number, port in enumerate(ports):
                    m.d.comb += port.rvalid.eq(turn[number])
                with m.If(taken):
                    m.d.sync += [address.eq(address + rows.parts), left.eq(left - 1)]
                    m.next = "FETCH"
                    with m.If(left == 0):
                        m.next = "CHOOSE"

    def _write(self, m, rows, ports):
        m.submodules.write_turns = turns = RoundRobin(len(ports))
        turn, identity = Signal(len(ports)), Signal(max(len(port.awid) for port in ports))
        address = Signal(self._address_width(ports, "awaddr"))
        exists, failed, last, answered = Signal(), Signal(), Signal(), Signal()
        first, final, told = Signal.like(self.marks.p), Signal.like(self.marks.p), Signal()
        m.d.comb += [
            exists.eq(address < self.size),
            rows.write_address.eq(address >> log2(rows.parts)),
            self.marks.p.eq(first),
        ]
        with m.FSM(name="writes"):
            with m.State("CHOOSE"):
                m.d.sync += failed.eq(0)
                with m.If(take_turn(m, turns, turn, ports, "aw", lambda number, port: [
                    address.eq(port.awaddr), identity.eq(port.awid),
                    first.eq(port.awaddr >> self.block_log2), told.eq(self.told[number])])):
                    m.next = "BEATS"
            with m.State("BEATS"):
                for number, port in enumerate(ports):
                    with m.If(turn[number]):
                        m.d.comb += [
                            port.wready.eq(1),
                            rows.write_data.eq(port.wdata),
                            rows.write_enable.eq(
                                Mux(port.wvalid & exists, port.wstrb, 0)),
                            last.eq(port.wvalid & port.wlast),
                        ]
                        with m.If(port.wvalid):
                            m.d.sync += [address.eq(address + rows.parts),
                                         final.eq(address >> self.block_log2),
                                         failed.eq(failed | ~exists)]
                with m.If(last):
                    m.next = "TELL"
            with m.State("TELL"):
                m.d.comb += self.marks.valid.eq(told & ~failed)
                with m.If(~self.marks.valid):
                    m.next = "ANSWER"
                with m.Elif(self.marks.ready):
                    m.d.sync += first.eq(first + 1)
                    with m.If(first == final):
                        m.next = "ANSWER"
            with m.State("ANSWER"):
                for number, port in enumerate(ports):
                    m.d.comb += [
                        port.bvalid.eq(turn[number]), port.bid.eq(identity),
                        port.bresp.eq(Mux(failed, DECERR, OKAY)),
                    ]
                    with m.If(turn[number]):
                        m.d.comb += answered.eq(port.bready)
                with m.If(answered):
                    m.next = "CHOOSE"

    @staticmethod
    def _address_width(ports, name):
        return max(len(getattr(port, name)) for port in ports)
