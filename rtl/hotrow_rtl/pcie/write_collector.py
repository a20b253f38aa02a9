"""WriteCollector: AXI4 write bursts of several masters, cut into memory writes."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import log2
from ..memory.axi_arbiter import accept_address
from ..primitives.bits import onehot_mux, popcount
from ..primitives.fifo import RamFifo
from ..primitives.round_robin_arbiter import RoundRobinArbiter
from .layouts import DWORD, LARGEST
from .read_splitter import largest_id, limit_mask

SEGMENTS = 16  # that wait for the link


def segment(buses) -> data.StructLayout:
    """A memory write: double words from `address`, the first `lane` double words into a bus word.

    With `empty` nothing is written. The last segment of a burst has `ends`.
    """
    bus_bytes = buses[0].bus_bytes
    return data.StructLayout({
        "empty": 1,
        "word": max(each.address_width for each in buses) - log2(bus_bytes),
        "lane": range(bus_bytes // DWORD),
        "dwords": range(LARGEST // DWORD + 1),
        "first_strobes": DWORD,
        "last_strobes": DWORD,
        "ends": 1,
        "master": range(max(2, len(buses))),
        "id": largest_id(buses),
    })


class WriteCollector(wiring.Component):
    """Accept bursts in round-robin order, and join their bytes to segments.

    A packet has byte enables for its first and its last double word only. A segment is thus a run
    of bytes with strobes. It ends before a multiple of the largest payload, and with its burst. A
    bus word whose strobes have a gap becomes a segment per double word. A segment leaves once all
    its data is there, so that a packet never waits for a master.

    Parameters
    ----------
    buses : sequence of AXI4Write
        The signature of each master, all of one bus width.

    Attributes
    ----------
    bus_0, ... : In(AXI4Write)
        Only the address and data channels are used.
    max_payload_bytes : In(16)
        See `limit_mask`.
    segments : Out(stream(segment(buses)))
    words : Out(stream(8 * bus_bytes))
        The bus words of all segments that are not empty.

    Timing
    ------
    A word a cycle, or a cycle per double word if it has a gap; a cycle more per burst, and where a
    word does not continue the run before it. A segment leaves 2 cycles after its end is known.
    """

    def __init__(self, buses):
        self.buses, self.bus_bytes = list(buses), buses[0].bus_bytes
        super().__init__({
            **{f"bus_{number}": In(each) for number, each in enumerate(self.buses)},
            "max_payload_bytes": In(16),
            "segments": Out(stream.Signature(segment(self.buses))),
            "words": Out(stream.Signature(8 * self.bus_bytes)),
        })

    def elaborate(self, platform):
        m = Module()
        bus_bytes, lanes = self.bus_bytes, self.bus_bytes // DWORD
        ports = [getattr(self, f"bus_{number}") for number in range(len(self.buses))]
        m.submodules.arbiter = arbiter = RoundRobinArbiter(len(ports))
        m.submodules.segments = segments = RamFifo(segment(self.buses), SEGMENTS)
        # Two of the largest payloads: one is sent while the next one comes.
        m.submodules.words = words = RamFifo(8 * bus_bytes, 2 * LARGEST // bus_bytes)
        connect(m, fifo=segments.o, sender=flipped(self.segments))
        connect(m, fifo=words.o, sender=flipped(self.words))
        mask = limit_mask(m, self.max_payload_bytes, bus_bytes, "mask")
        out = segments.i.p

        # The bus word of the burst that is accepted.
        owner, busy = Signal(len(ports)), Signal()
        master, axi_id = Signal.like(out.master), Signal.like(out.id)
        word_address = Signal.like(out.word)
        given, strobes = Signal(), Signal(bus_bytes)
        last, take = Signal(), Signal()
        for number, port in enumerate(ports):
            m.d.comb += port.wready.eq(owner[number] & take)
        m.d.comb += [
            given.eq(busy & onehot_mux(owner, [port.wvalid for port in ports])),
            strobes.eq(onehot_mux(owner, [port.wstrb for port in ports])),
            last.eq(onehot_mux(owner, [port.wlast for port in ports])),
            words.i.p.eq(onehot_mux(owner, [port.wdata for port in ports])),
        ]
        # Strobes with a gap: one double word at a time.
        sent = Signal(lanes)  # double words of the word that are sent
        used = Cat(strobes.word_select(lane, DWORD).any() & ~sent[lane] for lane in range(lanes))
        lowest, gap, part = Signal(lanes), Signal(), Signal(bus_bytes)
        m.d.comb += [
            gap.eq(popcount(m, (strobes & ~(strobes << 1))[:bus_bytes])[1:].any()),  # runs of bytes
            lowest.eq(used & (~used + 1)),
            part.eq(Mux(gap, strobes & Cat(lowest[lane].replicate(DWORD)
                                           for lane in range(lanes)), strobes)),
        ]
        complete = ~gap | ~(used & ~lowest).any()  # the word has no other part

        # The run: its first word and its double words so far.
        running, first = Signal(), Signal.like(out)
        some = used.any()
        part_lanes = Cat(part.word_select(lane, DWORD).any() for lane in range(lanes))
        first_lane = (part_lanes & (~part_lanes + 1))[:lanes]
        low = onehot_mux(first_lane, [part.word_select(lane, DWORD) for lane in range(lanes)])
        top_lane = Cat(part_lanes[lane] & ~part_lanes[lane + 1:].any() for lane in range(lanes))
        high = onehot_mux(top_lane, [part.word_select(lane, DWORD) for lane in range(lanes)])
        joins, stays, dwords = Signal(), Signal(), Signal.like(out.dwords)
        m.d.comb += [
            joins.eq(some & ~gap & part[0]),
            stays.eq(part[-1] & ~gap & ~last & ((word_address & mask) != mask)),
            dwords.eq(Mux(running, first.dwords, 0) + popcount(m, part_lanes)),
        ]
        ends_run = running & ~joins  # before this word
        stores = given & some & ~ends_run
        fits = segments.i.ready & words.i.ready
        m.d.comb += [
            words.i.valid.eq(stores & fits),
            take.eq(given & fits & (complete | ~some) & (~ends_run | ~some)),
            segments.i.valid.eq(given & fits & (ends_run | some & ~stays | ~some & last)),
            out.master.eq(master),
            out.id.eq(axi_id),
            out.ends.eq(last & complete & (~ends_run | ~some)),
        ]
        with m.If(running):
            m.d.comb += [out.word.eq(first.word), out.lane.eq(first.lane),
                         out.first_strobes.eq(first.first_strobes)]
        with m.Else():
            m.d.comb += [
                out.word.eq(word_address), out.lane.eq(onehot_mux(first_lane, range(lanes))),
                out.first_strobes.eq(low), out.empty.eq(~some)]
        with m.If(ends_run):
            m.d.comb += [out.dwords.eq(first.dwords), out.last_strobes.eq(first.last_strobes)]
        with m.Else():
            m.d.comb += [out.dwords.eq(dwords), out.last_strobes.eq(high)]
        m.d.sync += running.eq(
            ~(segments.i.valid & segments.i.ready) & (running | words.i.valid))
        with m.If(words.i.valid):
            m.d.sync += first.eq(out)
        with m.If(~busy):
            accepted = accept_address(m, arbiter, owner, ports, "aw", lambda number, port: [
                word_address.eq(port.awaddr >> log2(bus_bytes)),
                axi_id.eq(port.awid), master.eq(number)])
            m.d.sync += busy.eq(accepted)
        with m.Elif(take):
            m.d.sync += [word_address.eq(word_address + 1), busy.eq(~last)]
        with m.If(take):
            m.d.sync += sent.eq(0)
        with m.Elif(words.i.valid):
            m.d.sync += sent.eq(sent | lowest)
        return m
