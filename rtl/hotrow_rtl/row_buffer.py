"""Row buffer: the words of bursts in flight, put in order whatever order they come in."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .burst_window import place
from .config import Config
from .ram import Ram
from .row_layouts import buffer_words, read_beat, tag


class RowBuffer(wiring.Component):
    """Write each beat behind the former beat of its burst.

    Parameters
    ----------
    config : Config

    Members
    -------
    places : In(place(config))
        At least two cycles before the first beat of the burst.
    beats : In(read_beat(config))
        Beats of unlike ids may alternate from cycle to cycle.
    read_enable, read_position : In
    read_data : Out(config.bus_width)
        As of `Ram`.

    Timing
    ------
    A beat can be read 2 cycles after it came.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "places": In(place(config)),
            "beats": In(read_beat(config)),
            "read_enable": In(1),
            "read_position": In(range(buffer_words(config))),
            "read_data": Out(config.bus_width),
        })

    def elaborate(self, platform):
        m = Module()
        config, beat = self.config, self.beats
        positions, ids = range(buffer_words(config)), 1 << tag(config)
        m.submodules.words = words = Ram(config.bus_width, len(positions))
        m.submodules.starts = starts = Ram(positions, ids)
        m.submodules.nexts = nexts = Ram(positions, ids)  # behind the latest beat of a burst

        # The position of a beat is known one cycle after it came. When the former cycle brought
        # a beat of the same burst, the memory does not have its position yet.
        untouched = Signal(ids)  # bursts without a beat so far
        held = Signal(read_beat(config))
        is_first, repeats = Signal(), Signal()
        position, behind = Signal(positions), Signal(positions)
        m.d.comb += [
            starts.write_enable.eq(self.places.valid),
            starts.write_address.eq(self.places.id),
            starts.write_data.eq(self.places.position),
            starts.read_address.eq(beat.id),
            nexts.read_address.eq(beat.id),
            position.eq(Mux(is_first, starts.read_data, Mux(repeats, behind, nexts.read_data))),
            nexts.write_enable.eq(held.valid),
            nexts.write_address.eq(held.id),
            nexts.write_data.eq(position + 1),
            words.write_enable.eq(held.valid),
            words.write_address.eq(position),
            words.write_data.eq(held.data),
            words.read_enable.eq(self.read_enable),
            words.read_address.eq(self.read_position),
            self.read_data.eq(words.read_data),
        ]
        m.d.sync += [
            held.eq(beat),
            is_first.eq(untouched.bit_select(beat.id, 1)),
            repeats.eq(held.valid & (held.id == beat.id)),
            behind.eq(position + 1),
        ]
        with m.If(beat.valid):
            m.d.sync += untouched.bit_select(beat.id, 1).eq(0)
        with m.If(self.places.valid):
            m.d.sync += untouched.bit_select(self.places.id, 1).eq(1)
        return m
