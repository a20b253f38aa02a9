"""Burst window: which reads are in flight, where their words go, and which is the oldest."""

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .layouts import FAULT_DECERR, FAULT_SLVERR, FAULT_TIMEOUT
from .row_layouts import buffer_words, burst, burst_end, read_beat, tag, tagged_burst
from .skid import Skid


def place(config: Config) -> data.StructLayout:
    """Where the words of burst `id` go, if `valid`: from `position` of the buffer on."""
    return data.StructLayout({
        "valid": 1, "id": tag(config), "position": range(buffer_words(config))})


class BurstWindow(wiring.Component):
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
    beats : In(read_beat(config))
        In any order of ids.
    freed : In(1)
        A word has left the buffer.
    stopped : In(1)
        No burst without its last beat will get it any more.
    arrivals : Out(stream)
        One per burst, in order: its worst `fault`, TIMEOUT if the port stopped before its end.

    Timing
    ------
    Latency 1 cycle from burst to request, 2 from the last beat to the arrival; throughput 1 burst
    per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "bursts": In(stream.Signature(burst(config))),
            "requests": Out(stream.Signature(tagged_burst(config))),
            "places": Out(place(config)),
            "beats": In(read_beat(config)),
            "freed": In(1),
            "stopped": In(1),
            "arrivals": Out(stream.Signature(burst_end())),
        })

    def elaborate(self, platform):
        m = Module()
        count, words = self.config.outstanding, buffer_words(self.config)
        newest, oldest = Signal(tag(self.config)), Signal(tag(self.config))
        in_window, some, full = Signal(range(count + 1)), Signal(), Signal()
        # Room is taken with the burst, and may then be owed: its request waits until it is there.
        tail, room = Signal(range(words)), Signal(signed(words.bit_length() + 1), init=words)
        taken, fits = Signal(), Signal()
        ended, slave_error, decode_error = Signal(count), Signal(count), Signal(count)
        accept, retire = Signal(), Signal()
        out, arrival, beat = self.requests, self.arrivals, self.beats
        wanted = self.bursts.p.length + 1

        def following(number):
            return Mux(number == count - 1, 0, number + 1)

        m.d.comb += [
            fits.eq(room >= 0),
            out.valid.eq(taken & fits),
            self.bursts.ready.eq(~full & (~taken | fits & out.ready)),
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
                *(bits.bit_select(newest, 1).eq(0)
                  for bits in (ended, slave_error, decode_error)),
            ]
        with m.If(beat.valid):
            with m.If(beat.last):
                m.d.sync += ended.bit_select(beat.id, 1).eq(1)
            with m.If(beat.fault == FAULT_SLVERR):
                m.d.sync += slave_error.bit_select(beat.id, 1).eq(1)
            with m.If(beat.fault == FAULT_DECERR):
                m.d.sync += decode_error.bit_select(beat.id, 1).eq(1)

        complete = ended.bit_select(oldest, 1)
        m.submodules.skid = skid = Skid(burst_end().size)
        m.d.comb += [
            retire.eq(skid.i.valid & skid.i.ready),
            skid.i.valid.eq(some & (complete | self.stopped)),
            skid.i.p.eq(Mux(~complete, FAULT_TIMEOUT, Mux(
                decode_error.bit_select(oldest, 1), FAULT_DECERR, Mux(
                    slave_error.bit_select(oldest, 1), FAULT_SLVERR, 0)))),
            arrival.valid.eq(skid.o.valid),
            arrival.p.fault.eq(skid.o.p),
            skid.o.ready.eq(arrival.ready),
        ]
        with m.If(retire):
            m.d.sync += oldest.eq(following(oldest))
        with m.If(accept & ~retire):
            m.d.sync += [in_window.eq(in_window + 1), some.eq(1), full.eq(in_window == count - 1)]
        with m.Elif(retire & ~accept):
            m.d.sync += [in_window.eq(in_window - 1), some.eq(in_window != 1), full.eq(0)]
        m.d.sync += room.eq(room - Mux(accept, wanted, 0) + self.freed)
        return m
