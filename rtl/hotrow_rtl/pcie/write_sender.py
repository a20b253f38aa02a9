"""WriteSender: memory writes as packets, and the answers of their bursts."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import log2
from ..memory.axi import DECERR, OKAY
from ..primitives.skid_buffer import SkidBuffer
from .layouts import DWORD, HEADER_DWORDS, Fmt, Type, address_fields, beat, request_header, swapped
from .write_collector import segment


class WriteSender(wiring.Component):
    """Send each segment, and answer a burst once its last packet has been accepted.

    A posted write has no answer of its own. Later packets on the stream never pass it, so an answer
    means that no later read or completion passes the data. Without `master` a packet that has not
    begun is refused: its words are dropped.

    Parameters
    ----------
    buses : sequence of AXI4Write

    Attributes
    ----------
    segments : In(stream(segment(buses)))
    words : In(stream(width))
    requester : In(16)
    master : In(1)
        The card may send requests.
    packets : Out(stream(beat))
    bus_0, ... : In(AXI4Write)
        Only the answer channel is used.

    Timing
    ------
    Latency 1 cycle. A packet takes a cycle per beat, ceil((header + payload) / beat), also where it
    is refused. With `master` it holds until `ready`.
    """

    def __init__(self, buses):
        self.buses, self.bus_bytes = list(buses), buses[0].bus_bytes
        super().__init__({
            "segments": In(stream.Signature(segment(self.buses))),
            "words": In(stream.Signature(8 * self.bus_bytes)),
            "requester": In(16),
            "master": In(1),
            "packets": Out(stream.Signature(beat(8 * self.bus_bytes))),
            **{f"bus_{number}": In(each) for number, each in enumerate(self.buses)},
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.bus_bytes // DWORD
        given, out, width = self.segments, self.packets, 8 * self.bus_bytes

        # The next packet: its header, by how many lanes its words are rotated, and the beat of its
        # first word.
        beats = range(2 + (1 << len(given.p.dwords)) // lanes)
        job = Signal(data.StructLayout({
            "empty": 1, "header": request_header, "rotation": range(lanes),
            "start": beats, "words_end": beats, "last": beats,
            "keep": lanes, "ends": 1, "master": given.p.master.shape(), "id": len(given.p.id)}))
        valid, done, moves = Signal(), Signal(), Signal()
        # Of the job's next beat; registers, as `done` reaches into the collector.
        first, takes, final = Signal(), Signal(), Signal()
        number = Signal(beats)
        header = Signal(request_header)
        long = address_fields(m, header, given.p.word << log2(self.bus_bytes)
                              | given.p.lane << log2(DWORD))
        header_dwords = Mux(long, HEADER_DWORDS, HEADER_DWORDS - 1)
        total = Signal(range(HEADER_DWORDS + (1 << len(given.p.dwords))))
        rotation, lag = Signal(range(lanes)), Signal(range(2 * HEADER_DWORDS))
        words = Signal(beats)
        m.d.comb += [
            header.fmt.eq(Mux(long, Fmt.LONG_DATA, Fmt.SHORT_DATA)),
            header.type.eq(Type.MEMORY),
            header.length.eq(given.p.dwords),
            header.first_strobes.eq(given.p.first_strobes),
            header.last_strobes.eq(Mux(given.p.dwords == 1, 0, given.p.last_strobes)),
            header.requester.eq(self.requester),
            total.eq(header_dwords + given.p.dwords),
            rotation.eq(header_dwords - given.p.lane),
            # Double word 0 of the first word would be `lag` double words into the packet.
            lag.eq(header_dwords - given.p.lane),
            words.eq((given.p.lane + given.p.dwords + lanes - 1) >> log2(lanes)),
            given.ready.eq(~valid | done),
        ]
        with m.If(given.ready):
            start, end = lag >> log2(lanes), (total - 1) >> log2(lanes)
            m.d.sync += [
                first.eq(1), takes.eq(start == 0), final.eq(end == 0),
                valid.eq(given.valid), job.empty.eq(given.p.empty), job.header.eq(header),
                job.rotation.eq(rotation), job.start.eq(start), job.words_end.eq(start + words),
                job.last.eq(end),
                job.keep.eq(Mux(total[:log2(lanes)] == 0, (1 << lanes) - 1,
                                (1 << total[:log2(lanes)]) - 1)),
                job.ends.eq(given.p.ends), job.master.eq(given.p.master), job.id.eq(given.p.id)]
        with m.Elif(moves):
            m.d.sync += [
                first.eq(0), final.eq(number + 1 == job.last),
                takes.eq((number + 1 >= job.start) & (number + 1 < job.words_end))]

        previous, free = Signal(width), Signal()
        offered, refuses, refusing = Signal(), Signal(), Signal()
        m.d.comb += [
            refuses.eq(~job.empty & Mux(first, ~self.master, refusing)),
            offered.eq(valid & ~job.empty & (~takes | self.words.valid) & (~final | free)),
            out.valid.eq(offered & ~refuses),
            moves.eq(offered & (out.ready | refuses)),
            self.words.ready.eq(moves & takes),
            done.eq(Mux(job.empty, valid & free, moves & final)),
            out.p.last.eq(final),
            out.p.keep.eq(Mux(final, job.keep, (1 << lanes) - 1)),
        ]
        with m.If(moves):
            m.d.sync += [number.eq(Mux(final, 0, number + 1)), previous.eq(self.words.p),
                         refusing.eq(refuses)]
        payload, current = Signal(width), Signal(width)
        m.d.comb += current.eq(Mux(takes, self.words.p, 0))  # lanes without data hold, too
        with m.Switch(job.rotation):
            for shift in range(lanes):
                with m.Case(shift):
                    m.d.comb += payload.eq(
                        previous[width - 32 * shift:] | current << 32 * shift)
        header_bits = job.header.as_value()
        for lane in range(lanes):
            m.d.comb += out.p.data.word_select(lane, 32).eq(
                swapped(payload.word_select(lane, 32)))
        for place in range(HEADER_DWORDS):
            in_header = 1 if place < HEADER_DWORDS - 1 else job.header.fmt[0]
            with m.If((number == place // lanes) & in_header):
                m.d.comb += out.p.data.word_select(place % lanes, 32).eq(
                    header_bits.word_select(place, 32))

        refused = Signal()  # a packet of the burst
        answer = data.StructLayout({
            "master": job.master.shape(), "id": job.id.shape(), "response": 2})
        m.submodules.answers = answers = SkidBuffer(answer)
        m.d.comb += [
            free.eq(answers.i.ready),
            answers.i.valid.eq(done & job.ends),
            answers.i.p.master.eq(job.master),
            answers.i.p.id.eq(job.id),
            answers.i.p.response.eq(Mux(refused | refuses, DECERR, OKAY)),
        ]
        for idx in range(len(self.buses)):
            port, mine = getattr(self, f"bus_{idx}"), answers.o.p.master == idx
            m.d.comb += [port.bvalid.eq(answers.o.valid & mine), port.bid.eq(answers.o.p.id),
                         port.bresp.eq(answers.o.p.response)]
            with m.If(mine):
                m.d.comb += answers.o.ready.eq(port.bready)
        with m.If(done):
            m.d.sync += refused.eq((refused | refuses) & ~job.ends)
        return m
