"""What the card ignored, counted."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .layouts import counted

_BITS = 16


class LinkCounters(wiring.Component):
    """A counter for each member of `counted`, which stays at its largest.

    Members
    -------
    happened : In(counted)
    values : Out(16 * counters)
        The first counter lowest.
    """

    happened: In(counted)
    values: Out(_BITS * counted.size)

    def elaborate(self, platform):
        m = Module()
        counts = Signal(data.ArrayLayout(_BITS, counted.size))
        for number, event in enumerate(Cat(self.happened)):
            with m.If(event & ~counts[number].all()):
                m.d.sync += counts[number].eq(counts[number] + 1)
        m.d.comb += self.values.eq(Cat(counts))
        return m
