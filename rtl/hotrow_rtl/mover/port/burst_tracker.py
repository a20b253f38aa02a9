"""Burst window: which reads are in flight, where their words go, and which is the oldest."""

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...interfaces.records import FAULT_TIMEOUT
from ...primitives.ram import ClearedRam
from ...primitives.skid_buffer import SkidBuffer
from .payloads import buffer_words, burst, burst_end, ended_burst, tag, tagged_burst


def place(config: Config) -> data.StructLayout:
    """Where the words of burst `id` go, if `valid`: from `position` of the buffer on."""
    return data.StructLayout({
        "valid": 1, "id": tag(config), "position": range(buffer_words(config))})


class BurstTracker(wiring.Component):
    """Give bursts ids and room in the buffer, and report their ends in order.

    Parameters
    ----------
    config : Config
        `outstanding` ids, handed out in turn.

    Members
    -------
    bursts : In(stream(burst(config)))
    requests : Out(stream(tagged_burst(config)))
    places : Out(place(config))
        Valid in the cycle before its request appears. Room is consecutive, modulo the buffer.
    ended : In(ended_burst(config))
        In any order of ids.
    freed : In(1)
        A word has left the buffer.
    stopped : In(1)
        No burst without its last beat will get it any more.
    arrivals : Out(stream)
        One per burst, in order: its worst `fault`, TIMEOUT while the port is stopped.

    Timing
    ------
    Latency 1 cycle from burst to request, 2 from the end to the arrival; throughput 1 burst per
    cycle. After reset none is taken for as many cycles as there are ids.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "bursts": In(stream.Signature(burst(config))),
            "requests": Out(stream.Signature(tagged_burst(config))),
            "places": Out(place(config)),
            "ended": In(ended_burst(config)),
            "freed": In(1),
            "stopped": In(1),
            "arrivals": Out(stream.Signature(burst_end())),
        })

    def elaborate(self, platform):
        m = Module()
        count, words = self.config.outstanding, buffer_words(self.config)
        ids = 1 << tag(self.config)
        newest, oldest, second = Signal(tag(self.config)), Signal(tag(self.config)), Signal(
            tag(self.config), init=1 % count)
        in_window, some, full = Signal(range(count + 1)), Signal(), Signal()
        burst_turn = data.StructLayout({"turn": 1, "fault": 2})
        m.submodules.ends = ends = ClearedRam(burst_turn, ids)
        # Room is taken with the burst, and may then be owed: its request waits until it is there.
        tail, room = Signal(range(words)), Signal(signed(words.bit_length() + 1), init=words)
        taken, fits = Signal(), Signal()
        accept, retire = Signal(), Signal()
        out, arrival = self.requests, self.arrivals
        wanted = self.bursts.p.length + 1

        def following(number):
            return Mux(number == count - 1, 0, number + 1)

        m.d.comb += [
            fits.eq(room >= 0),
            out.valid.eq(taken & fits),
            self.bursts.ready.eq(~full & ends.ready & (~taken | fits & out.ready)),
            accept.eq(self.bursts.valid & self.bursts.ready),
            self.places.valid.eq(accept),
            self.places.id.eq(newest),
            self.places.position.eq(tail),
        ]
        with m.If(out.valid & out.ready):
            m.d.sync += taken.eq(0)
        with m.If(accept):
            m.d.sync += [
                taken.eq(1),
                out.p.id.eq(newest),
                out.p.burst.eq(self.bursts.p),
                newest.eq(following(newest)),
                tail.eq(tail + wanted),
            ]

        # How the latest burst of each id ended is read for the oldest burst in every cycle. It has
        # ended when the turn is its own: of its id, that changes with every burst.
        end, held, is_held = self.ended, Signal(burst_turn), Signal()
        turn, found = Signal(init=1), Signal(burst_turn)
        m.d.comb += [
            ends.write_enable.eq(end.valid),
            ends.write_address.eq(end.id),
            ends.write_data.turn.eq(end.turn),
            ends.write_data.fault.eq(end.fault),
            ends.read_address.eq(Mux(retire, second, oldest)),
            found.eq(Mux(is_held, held, ends.read_data)),
        ]
        m.d.sync += [  # what is written while it is read
            is_held.eq(end.valid & Mux(retire, end.id == second, end.id == oldest)),
            held.turn.eq(end.turn),
            held.fault.eq(end.fault),
        ]
        m.submodules.skid = skid = SkidBuffer(burst_end().size)
        m.d.comb += [
            retire.eq(skid.i.valid & skid.i.ready),
            skid.i.valid.eq(some & ((found.turn == turn) | self.stopped)),
            skid.i.p.eq(Mux(self.stopped, FAULT_TIMEOUT, found.fault)),
            arrival.valid.eq(skid.o.valid),
            arrival.p.fault.eq(skid.o.p),
            skid.o.ready.eq(arrival.ready),
        ]
        with m.If(retire):
            m.d.sync += [
                oldest.eq(second), second.eq(following(second)), turn.eq(turn ^ (second == 0))]
        with m.If(accept ^ retire):
            m.d.sync += [
                in_window.eq(Mux(retire, in_window - 1, in_window + 1)),
                some.eq(~retire | (in_window != 1)),
                full.eq(~retire & (in_window == count - 1)),
            ]
        # `accept` comes late, and stays out of carry chains.
        m.d.sync += room.eq(Mux(accept, room - wanted + self.freed, room + self.freed))
        return m
