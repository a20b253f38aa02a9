"""Queue of one bank: it splits beats into requests and collects the answers by beat."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import RING_BEATS, Config
from ...primitives.fifo import RamFifo
from ...primitives.ram import Ram

BACKLOG = 16  # queued beats with requests; one more is offered to the bank
IN_FLIGHT = 16  # queued requests without an answer; one more leaves the queue


class BankQueue(wiring.Component):
    """Issue the requests of one bank, and store its answers until their beat leaves the crossbar.

    Parameters
    ----------
    config : Config
    request, shared, answer : int
        Bits of a lane's part of a request, of the part that all lanes of a beat share, and of a
        answer.
    beats : int, optional
        Slots of the crossbar, a power of two.

    Attributes
    ----------
    push : In(1)
        A beat enters the crossbar at the free slot `slot`.
    slot : In(range(beats))
    mask : In(config.lanes)
        Lanes of the beat with a request to this bank. An input, so that all queues share one
        module.
    requests : In(ArrayLayout(request, config.lanes))
    shared : In(shared)
    space : Out(1)
        A push is allowed two cycles later, even after pushes in this and the next cycle.
    request : Out(stream(request + shared))
        The requests of the pushed beats in order, lanes ascending; `shared` in the high bits.
    answer : In(stream(answer, always_ready=True))
        One per request, in order, at the earliest in the cycle after the request fired.
    done : Out(1)
        The oldest beat with a request to this bank has all its answers.
    pop : In(1)
        That beat leaves the crossbar.
    read : In(1)
        Read the answers to the beat in `read_slot`.
    read_slot : In(range(beats))
    read_lanes : In(config.lanes)
        Lanes to read.
    answers : Out(ArrayLayout(answer, config.lanes))
        One cycle after `read`; 0 in lanes that are not read.
    restart : In(1)
        A pulse drops everything; the bank must not respond to earlier requests afterwards.

    Timing
    ------
    The first request of a beat is issued `latency` cycles after its push, then one a cycle
    without a gap between beats while at most `IN_FLIGHT` have no answer. `done` follows a
    answer by one cycle.
    """

    latency = RamFifo.latency + 1

    def __init__(self, config: Config, request: int, shared: int, answer: int,
                 beats: int = RING_BEATS):
        self.config, self._request, self._shared = config, request, shared
        self._answer = answer
        self._beats = beats
        super().__init__({
            "push": In(1),
            "slot": In(range(beats)),
            "mask": In(config.lanes),
            "requests": In(data.ArrayLayout(request, config.lanes)),
            "shared": In(shared),
            "space": Out(1),
            "request": Out(stream.Signature(request + shared)),
            "answer": In(stream.Signature(answer, always_ready=True)),
            "done": Out(1),
            "pop": In(1),
            "read": In(1),
            "read_slot": In(range(beats)),
            "read_lanes": In(config.lanes),
            "answers": Out(data.ArrayLayout(answer, config.lanes)),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.config.lanes
        m.submodules.beats = beats = RamFifo(data.StructLayout({
            "mask": lanes,
            "slot": range(self._beats),
            "shared": self._shared,
            "requests": data.ArrayLayout(self._request, lanes),
        }), BACKLOG)
        m.submodules.in_flight = in_flight = RamFifo(data.StructLayout({
            "slot": range(self._beats), "lane": range(lanes), "last": 1}), IN_FLIGHT)
        m.d.comb += [
            beats.clear.eq(self.restart),
            in_flight.clear.eq(self.restart),
            beats.i.p.mask.eq(self.mask),
            beats.i.p.slot.eq(self.slot),
            beats.i.p.requests.eq(self.requests),
            beats.i.p.shared.eq(self.shared),
            beats.i.valid.eq(self.push & self.mask.any()),
            self.space.eq(beats.level <= BACKLOG - 3),
        ]

        beat, issued = beats.o.p, Signal(lanes)  # lanes of the beat whose request is issued
        waiting, others = Signal(lanes), Signal(lanes)  # `others`: without the lowest
        lane, issue = Signal(range(lanes)), Signal()
        m.d.comb += [
            waiting.eq(beat.mask & ~issued),
            others.eq(waiting & (waiting - 1)),
            issue.eq(
                beats.o.valid & in_flight.i.ready & (~self.request.valid | self.request.ready)),
            beats.o.ready.eq(issue & ~others.any()),
            in_flight.i.valid.eq(issue),
            in_flight.i.p.slot.eq(beat.slot),
            in_flight.i.p.lane.eq(lane),
            in_flight.i.p.last.eq(~others.any()),
        ]
        for number in reversed(range(lanes)):
            with m.If(waiting[number]):
                m.d.comb += lane.eq(number)
        with m.If(self.request.ready):
            m.d.sync += self.request.valid.eq(0)
        with m.If(issue):
            m.d.sync += [
                self.request.valid.eq(1),
                self.request.p.eq(Cat(beat.requests[lane], beat.shared)),
                issued.eq(Mux(others.any(), beat.mask & ~others, 0)),
            ]

        oldest, done_count = in_flight.o.p, Signal(range(self._beats + 1))
        m.d.comb += in_flight.o.ready.eq(self.answer.valid)
        completes = self.answer.valid & oldest.last
        with m.If(completes ^ self.pop):
            m.d.sync += [
                done_count.eq(Mux(completes, done_count + 1, done_count - 1)),
                self.done.eq(completes | (done_count != 1)),
            ]
        # One memory row per beat: lanes are written one by one and read together.
        m.submodules.answer_rows = rows = Ram(self._answer * lanes, self._beats, parts=lanes)
        read_lanes_q = Signal(lanes, reset_less=True)
        m.d.comb += [
            rows.write_enable.eq(Mux(self.answer.valid, 1 << oldest.lane, 0)),
            rows.write_address.eq(oldest.slot),
            rows.write_data.eq(self.answer.p.replicate(lanes)),
            rows.read_enable.eq(self.read),
            rows.read_address.eq(self.read_slot),
            [answer.eq(Mux(read, rows.read_data.word_select(number, self._answer), 0))
             for number, (answer, read) in enumerate(
                 zip(self.answers, read_lanes_q, strict=True))],
        ]
        with m.If(self.read):
            m.d.sync += read_lanes_q.eq(self.read_lanes)
        with m.If(self.restart):
            m.d.sync += [
                self.request.valid.eq(0), issued.eq(0), done_count.eq(0), self.done.eq(0)]
        return m
