"""Decay: every count shifted right."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .config import Config, log2
from .counter_set import counter_set


class DecaySweep(wiring.Component):
    """Read, shift and write back one set a cycle.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(1)
        A pulse begins a sweep with the `shift` of that cycle.
    shift : In(32)
    done : Out(1)
        A pulse after the write of the last set.
    read_address, read_data, write_enable, write_address, write_data
        Of the memory of counter sets, read latency 2.

    Timing
    ------
    `done` comes sets + `latency` cycles after `start`: address, read, shift, done.
    """

    latency = 4

    def __init__(self, config: Config):
        self.config = config
        set_width = log2(config.counter_sets)
        super().__init__({
            "start": In(1),
            "shift": In(32),
            "done": Out(1),
            "read_address": Out(set_width),
            "read_data": In(counter_set(config)),
            "write_enable": Out(1),
            "write_address": Out(set_width),
            "write_data": Out(counter_set(config)),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        at = Signal(log2(c.counter_sets))
        shift = Signal(range(c.counter_bits + 1))  # shifting by all bits leaves zero
        valid = Signal(3)  # address, read, shifted
        held = self.read_data
        with m.If(valid[0]):
            m.d.sync += at.eq(at + 1)
        with m.If(self.start):
            m.d.sync += [
                at.eq(0), shift.eq(Mux(self.shift > c.counter_bits, c.counter_bits, self.shift))]
        going = self.start | valid[0] & (at != c.counter_sets - 1)
        m.d.sync += valid.eq(Cat(going, valid))
        written = Signal.like(at)
        with m.If(self.write_enable):
            m.d.sync += written.eq(written + 1)
        m.d.comb += [
            self.read_address.eq(at),
            self.write_enable.eq(valid[2]),
            self.write_address.eq(written),
        ]
        m.d.sync += self.done.eq(self.write_enable & (written == c.counter_sets - 1))
        m.d.comb += self.write_data.hand.eq(held.hand)
        for before, after in zip(held.ways, self.write_data.ways):
            m.d.comb += [after.tag.eq(before.tag), after.count.eq(before.count >> shift)]
        return m
