"""ReorderBuffer: the words of bursts in flight, stored in order whatever order they come in."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...primitives.ram import ClearedRam, Ram
from .burst_tracker import allocation
from .payloads import buffer_words, finished_burst, id_state, id_width, read_beat


class ReorderBuffer(wiring.Component):
    """Store each beat after the previous beat of its burst, and report the end of every burst.

    The state of each id lies in a memory that is cleared after reset; `BurstTracker` accepts no
    burst before its own memory of the same depth is cleared.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    allocations : In(allocation(config))
        At least two cycles before the first beat of the burst.
    beats : In(read_beat(config))
        Beats of different ids may interleave.
    finished : Out(finished_burst(config))
    read_enable, read_address : In
    read_data : Out(config.bus_width)
        See `Ram`.

    Timing
    ------
    A beat can be read 2 cycles after it came. `finished` comes 1 cycle after the last beat.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "allocations": In(allocation(config)),
            "beats": In(read_beat(config)),
            "finished": Out(finished_burst(config)),
            "read_enable": In(1),
            "read_address": In(range(buffer_words(config))),
            "read_data": Out(config.bus_width),
        })

    def elaborate(self, platform):
        m = Module()
        config, beat = self.config, self.beats
        addresses, ids = range(buffer_words(config)), 1 << id_width(config)
        m.submodules.words = words = Ram(config.bus_width, len(addresses))
        m.submodules.starts = starts = Ram(addresses, ids)
        m.submodules.states = states = ClearedRam(id_state(config), ids)

        # The state of an id is read in one cycle. If two consecutive beats have the same id,
        # `next_state_q` bypasses the memory.
        beat_q = Signal(read_beat(config))
        use_bypass = Signal()
        state, next_state_q = Signal(id_state(config)), Signal(id_state(config))
        next_state, address, fault = Signal(id_state(config)), Signal(addresses), Signal(2)
        m.d.comb += [
            starts.write_enable.eq(self.allocations.valid),
            starts.write_address.eq(self.allocations.id),
            starts.write_data.eq(self.allocations.address),
            starts.read_address.eq(beat.id),
            states.read_address.eq(beat.id),
            state.eq(Mux(use_bypass, next_state_q, states.read_data)),
            address.eq(Mux(state.active, state.address, starts.read_data)),
            fault.eq(Mux(state.active & (state.fault > beat_q.fault), state.fault, beat_q.fault)),
            next_state.active.eq(~beat_q.last),
            next_state.phase.eq(state.phase ^ beat_q.last),
            next_state.fault.eq(fault),
            next_state.address.eq(address + 1),
            states.write_enable.eq(beat_q.valid),
            states.write_address.eq(beat_q.id),
            states.write_data.eq(next_state),
            self.finished.valid.eq(beat_q.valid & beat_q.last),
            self.finished.id.eq(beat_q.id),
            self.finished.phase.eq(next_state.phase),
            self.finished.fault.eq(fault),
            words.write_enable.eq(beat_q.valid),
            words.write_address.eq(address),
            words.write_data.eq(beat_q.data),
            words.read_enable.eq(self.read_enable),
            words.read_address.eq(self.read_address),
            self.read_data.eq(words.read_data),
        ]
        m.d.sync += [
            beat_q.eq(beat),
            use_bypass.eq(beat_q.valid & (beat_q.id == beat.id)),
            next_state_q.eq(next_state),
        ]
        return m
