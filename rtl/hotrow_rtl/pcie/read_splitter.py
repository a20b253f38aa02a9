"""ReadSplitter: AXI4 read bursts of several masters, cut into read requests."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import log2
from ..memory.axi import LENGTH_WIDTH
from ..memory.axi_arbiter import accept_address
from ..primitives.round_robin_arbiter import RoundRobinArbiter
from .layouts import LARGEST, SMALLEST


def largest_id(buses):
    """Bits of the widest id of several AXI4 signatures."""
    return max(each.id_width for each in buses)


def read_chunk(buses) -> data.StructLayout:
    """Part of a burst: its first byte, its bus words minus one, and to whom its data returns."""
    return data.StructLayout({
        "address": max(each.address_width for each in buses),
        "len_minus_1": range(LARGEST // buses[0].bus_bytes),
        "master": range(max(2, len(buses))),
        "id": largest_id(buses),
        "last": 1,  # of its burst
    })


def limit_mask(m, limit, bus_bytes, name):
    """Bits of a word's number within the largest request or payload.

    Parameters
    ----------
    limit : Value
        Bytes, a power of two of at least `SMALLEST`; more than `LARGEST` counts as `LARGEST`.
    """
    mask = Signal(log2(LARGEST // bus_bytes), name=name)
    sizes = [size for size in (SMALLEST, 2 * SMALLEST, 4 * SMALLEST) if size < LARGEST]
    m.d.sync += mask.eq(LARGEST // bus_bytes - 1)
    for size in reversed(sizes):
        with m.If(limit <= size):
            m.d.sync += mask.eq(size // bus_bytes - 1)
    return mask


class ReadSplitter(wiring.Component):
    """Accept bursts in round-robin order, and end a chunk at each multiple of the largest read.

    A burst of AXI4 crosses no page of 4096 bytes, so no chunk does.

    Parameters
    ----------
    buses : sequence of AXI4Read
        The signature of each master, all of one bus width.

    Attributes
    ----------
    bus_0, ... : In(AXI4Read)
        Only the address channel is used.
    max_read_bytes : In(16)
        See `limit_mask`.
    chunks : Out(stream(read_chunk(buses)))

    Timing
    ------
    A chunk follows its address by one cycle; one chunk a cycle, and one cycle per burst.
    """

    def __init__(self, buses):
        self.buses = list(buses)
        super().__init__({
            **{f"bus_{number}": In(each) for number, each in enumerate(self.buses)},
            "max_read_bytes": In(16),
            "chunks": Out(stream.Signature(read_chunk(self.buses))),
        })

    def elaborate(self, platform):
        m = Module()
        bus_bytes, out = self.buses[0].bus_bytes, self.chunks
        ports = [getattr(self, f"bus_{number}") for number in range(len(self.buses))]
        m.submodules.arbiter = arbiter = RoundRobinArbiter(len(ports))
        owner, busy = Signal(len(ports)), Signal()
        # Timing: the words left in the chunk's block are subtracted from registers only.
        mask = limit_mask(m, self.max_read_bytes, bus_bytes, "mask")
        word = Signal(len(out.p.address) - log2(bus_bytes))
        remaining, room = Signal(LENGTH_WIDTH), Signal(LENGTH_WIDTH)  # words minus one
        master, axi_id = Signal.like(out.p.master), Signal.like(out.p.id)
        m.d.comb += [
            out.p.master.eq(master),
            out.p.id.eq(axi_id),
            room.eq(~word[:len(mask)] & mask),
            out.valid.eq(busy),
            out.p.address.eq(word << log2(bus_bytes)),
            out.p.last.eq(remaining <= room),
            out.p.len_minus_1.eq(Mux(out.p.last, remaining, room)),
        ]
        with m.If(~busy):
            accepted = accept_address(m, arbiter, owner, ports, "ar", lambda number, port: [
                word.eq(port.araddr >> log2(bus_bytes)), remaining.eq(port.arlen),
                axi_id.eq(port.arid), master.eq(number)])
            m.d.sync += busy.eq(accepted)
        with m.Elif(out.ready):
            m.d.sync += [word.eq(word + room + 1), remaining.eq(remaining - room - 1),
                         busy.eq(~out.p.last)]
        return m
