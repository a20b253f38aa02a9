"""Bank feed: one bank's side of the ring, from beats to requests and from answers to beats."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import RING_BEATS, Config
from ...primitives.fifo import RamFifo
from ...primitives.ram import Ram

BACKLOG = 16  # beats of which a bank has not been asked everything
IN_FLIGHT = 16  # requests that a bank has not answered


class BankQueue(wiring.Component):
    """Give one bank its lanes of the beats that enter, and keep its answers until they leave.

    Parameters
    ----------
    config : Config
    request, shared, answer : int
        Bits of what a lane asks, of what all lanes of a beat ask besides, and of an answer.
    beats : int, optional
        Places of the ring, a power of two.

    Members
    -------
    enter : In(1)
        A beat enters the ring in place `slot`, one that holds no beat.
    slot : In(range(beats))
    mask : In(config.lanes)
        Its lanes that ask this bank. (Given, so that the feeds of all banks are one module.)
    requests : In(ArrayLayout(request, config.lanes))
    shared : In(shared)
    room : Out(1)
        A beat may enter two cycles later, even if one does in this and in the next.
    request : Out(stream(request + shared))
        The lanes for this bank in lane order, beats in order; what is shared in the high bits.
    answer : In(stream(answer, always_ready=True))
        One per request, in order, at the earliest in the cycle after it was taken.
    done : Out(1)
        The earliest beat inside that asked this bank has all its answers.
    leave : In(1)
        That beat leaves the ring.
    read : In(1)
        Fetch the answers of the beat in place `read_slot`.
    read_slot : In(range(beats))
    wanted : In(config.lanes)
        Of which lanes.
    answers : Out(ArrayLayout(answer, config.lanes))
        One cycle after `read`; zero of lanes that are not wanted.
    restart : In(1)
        A pulse drops everything; nothing asked before may be answered after it.

    Timing
    ------
    A beat's first request leaves `latency` cycles after it entered; one a cycle, without a gap
    between beats, while fewer than `IN_FLIGHT` are unanswered. `done` the cycle after an answer.
    """

    latency = RamFifo.latency + 1

    def __init__(self, config: Config, request: int, shared: int, answer: int,
                 beats: int = RING_BEATS):
        self.config, self._request, self._shared = config, request, shared
        self._answer = answer
        self._beats = beats
        super().__init__({
            "enter": In(1),
            "slot": In(range(beats)),
            "mask": In(config.lanes),
            "requests": In(data.ArrayLayout(request, config.lanes)),
            "shared": In(shared),
            "room": Out(1),
            "request": Out(stream.Signature(request + shared)),
            "answer": In(stream.Signature(answer, always_ready=True)),
            "done": Out(1),
            "leave": In(1),
            "read": In(1),
            "read_slot": In(range(beats)),
            "wanted": In(config.lanes),
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
            beats.i.valid.eq(self.enter & self.mask.any()),
            self.room.eq(beats.level <= BACKLOG - 3),
        ]

        beat, gone = beats.o.p, Signal(lanes)  # lanes of the beat that have been asked
        waiting, behind = Signal(lanes), Signal(lanes)  # `behind`: without the lowest
        lane, ask = Signal(range(lanes)), Signal()
        m.d.comb += [
            waiting.eq(beat.mask & ~gone),
            behind.eq(waiting & (waiting - 1)),
            ask.eq(beats.o.valid & in_flight.i.ready & (~self.request.valid | self.request.ready)),
            beats.o.ready.eq(ask & ~behind.any()),
            in_flight.i.valid.eq(ask),
            in_flight.i.p.slot.eq(beat.slot),
            in_flight.i.p.lane.eq(lane),
            in_flight.i.p.last.eq(~behind.any()),
        ]
        for number in reversed(range(lanes)):
            with m.If(waiting[number]):
                m.d.comb += lane.eq(number)
        with m.If(self.request.ready):
            m.d.sync += self.request.valid.eq(0)
        with m.If(ask):
            m.d.sync += [
                self.request.valid.eq(1),
                self.request.p.eq(Cat(beat.requests[lane], beat.shared)),
                gone.eq(Mux(behind.any(), beat.mask & ~behind, 0)),
            ]

        answered, complete = in_flight.o.p, Signal(range(self._beats + 1))  # beats inside
        m.d.comb += in_flight.o.ready.eq(self.answer.valid)
        completes = self.answer.valid & answered.last
        with m.If(completes ^ self.leave):
            m.d.sync += [
                complete.eq(Mux(completes, complete + 1, complete - 1)),
                self.done.eq(completes | (complete != 1)),
            ]
        # A row for each beat, which lanes write one by one and that is read as a whole.
        m.submodules.answers = rows = Ram(self._answer * lanes, self._beats, parts=lanes)
        shown = Signal(lanes, reset_less=True)
        m.d.comb += [
            rows.write_enable.eq(Mux(self.answer.valid, 1 << answered.lane, 0)),
            rows.write_address.eq(answered.slot),
            rows.write_data.eq(self.answer.p.replicate(lanes)),
            rows.read_enable.eq(self.read),
            rows.read_address.eq(self.read_slot),
            [told.eq(Mux(wanted, rows.read_data.word_select(number, self._answer), 0))
             for number, (told, wanted) in enumerate(zip(self.answers, shown))],
        ]
        with m.If(self.read):
            m.d.sync += shown.eq(self.wanted)
        with m.If(self.restart):
            m.d.sync += [self.request.valid.eq(0), gone.eq(0), complete.eq(0), self.done.eq(0)]
        return m
