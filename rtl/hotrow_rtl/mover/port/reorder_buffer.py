"""Row buffer: the words of bursts in flight, put in order whatever order they come in."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...primitives.ram import ClearedRam, Ram
from .burst_tracker import place
from .payloads import buffer_words, ended_burst, id_state, read_beat, tag


class ReorderBuffer(wiring.Component):
    """Write each beat behind the former beat of its burst, and tell when a burst has ended.

    What is known of each id lies in memory, of which no burst may be under way before it has been
    swept: as long as `BurstTracker` takes none.

    Parameters
    ----------
    config : Config

    Members
    -------
    places : In(place(config))
        At least two cycles before the first beat of the burst.
    beats : In(read_beat(config))
        Beats of unlike ids may alternate from cycle to cycle.
    ended : Out(ended_burst(config))
    read_enable, read_position : In
    read_data : Out(config.bus_width)
        As of `Ram`.

    Timing
    ------
    A beat can be read 2 cycles after it came; a burst has ended 1 cycle after its last.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "places": In(place(config)),
            "beats": In(read_beat(config)),
            "ended": Out(ended_burst(config)),
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
        m.submodules.states = states = ClearedRam(id_state(config), ids)  # after the latest beat

        # The state of an id is known one cycle after its beat came. When the former cycle brought
        # a beat of the same id, the memory does not have it yet.
        held = Signal(read_beat(config))
        repeats = Signal()
        former, latest = Signal(id_state(config)), Signal(id_state(config))
        state, position, fault = Signal(id_state(config)), Signal(positions), Signal(2)
        m.d.comb += [
            starts.write_enable.eq(self.places.valid),
            starts.write_address.eq(self.places.id),
            starts.write_data.eq(self.places.position),
            starts.read_address.eq(beat.id),
            states.read_address.eq(beat.id),
            former.eq(Mux(repeats, latest, states.read_data)),
            position.eq(Mux(former.inside, former.position, starts.read_data)),
            fault.eq(Mux(former.inside & (former.fault > held.fault), former.fault, held.fault)),
            state.inside.eq(~held.last),
            state.turn.eq(former.turn ^ held.last),
            state.fault.eq(fault),
            state.position.eq(position + 1),
            states.write_enable.eq(held.valid),
            states.write_address.eq(held.id),
            states.write_data.eq(state),
            self.ended.valid.eq(held.valid & held.last),
            self.ended.id.eq(held.id),
            self.ended.turn.eq(state.turn),
            self.ended.fault.eq(fault),
            words.write_enable.eq(held.valid),
            words.write_address.eq(position),
            words.write_data.eq(held.data),
            words.read_enable.eq(self.read_enable),
            words.read_address.eq(self.read_position),
            self.read_data.eq(words.read_data),
        ]
        m.d.sync += [
            held.eq(beat),
            repeats.eq(held.valid & (held.id == beat.id)),
            latest.eq(state),
        ]
        return m
