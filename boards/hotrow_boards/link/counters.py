"""Counters of frames that the card ignored."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .layouts import counter_events

_BITS = 16


class LinkCounters(wiring.Component):
    """A saturating counter for each field of `counter_events`.

    Attributes
    ----------
    events : In(counter_events)
        Counters to increment in this cycle.
    values : Out(16 * counters)
        The first counter in the lowest bits.
    """

    events: In(counter_events)
    values: Out(_BITS * counter_events.size)

    def elaborate(self, platform):
        m = Module()
        counts = Signal(data.ArrayLayout(_BITS, counter_events.size))
        for idx, event in enumerate(Cat(self.events)):
            with m.If(event & ~counts[idx].all()):
                m.d.sync += counts[idx].eq(counts[idx] + 1)
        m.d.comb += self.values.eq(Cat(counts))
        return m
