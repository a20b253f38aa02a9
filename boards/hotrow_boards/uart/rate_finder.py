"""The rate of a serial line, measured from its sync bytes."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .layouts import LEAST_PERIOD, PERIOD_BITS, SYNC_INTERVALS

_STEPS = 3  # of a measurement
_LOSSES = 4  # bad frames or bytes, no good frame between them, before a rate is given up


class RateFinder(wiring.Component):
    """Tell the period of a line on which sync bytes come: 0x55, a falling edge every two bits.

    A rate that was found is kept, whatever bytes look like, until several bad ones have come in a
    row: other bytes can have such edges, too.

    Source: the sync byte of LIN (ISO 17987-3), whose slaves find their rate in the same way.

    Parameters
    ----------
    period : int
        Before anything was measured.

    Members
    -------
    line : In(1)
        Synchronised.
    good, bad : In(1)
        A frame was whole; a frame or a byte was not.
    period : Out(PERIOD_BITS)
        Of eight bits, in cycles.

    Timing
    ------
    The period is that of the last four intervals, 4 cycles after they have ended.
    """

    def __init__(self, period=LEAST_PERIOD):
        super().__init__({
            "line": In(1), "good": In(1), "bad": In(1),
            "period": Out(PERIOD_BITS, init=period),
        })

    def elaborate(self, platform):
        m = Module()
        before, falls = Signal(init=1), Signal()
        since = Signal(PERIOD_BITS - 1)  # cycles since the last falling edge; stays at its largest
        intervals = Signal(data.ArrayLayout(len(since), SYNC_INTERVALS))
        total = Signal(PERIOD_BITS + 1)
        alike, possible = Signal(), Signal()
        measured = Signal(_STEPS)  # since the last falling edge: to keep, to add, to compare
        losses = Signal(range(_LOSSES + 1), init=_LOSSES)
        m.d.comb += falls.eq(before & ~self.line)
        m.d.sync += [
            before.eq(self.line),
            measured.eq(Cat(falls, measured[:-1])),
            total.eq(sum(intervals[number] for number in range(SYNC_INTERVALS))),
            # Each within an eighth of their mean.
            alike.eq(Cat(
                ((intervals[number] << 5) <= 9 * total) & ((intervals[number] << 5) >= 7 * total)
                for number in range(SYNC_INTERVALS)).all()),
            possible.eq((total >= LEAST_PERIOD) & ~total[PERIOD_BITS:].any()),
        ]
        with m.If(falls):
            m.d.sync += [
                Cat(intervals).eq(Cat(Cat(intervals)[len(since):], since)),
                since.eq(1),
            ]
        with m.Elif(~since.all()):
            m.d.sync += since.eq(since + 1)
        with m.If(self.good):
            m.d.sync += losses.eq(0)
        with m.Elif(self.bad & (losses != _LOSSES)):
            m.d.sync += losses.eq(losses + 1)
        with m.If(measured[-1] & alike & possible & (losses == _LOSSES)):
            m.d.sync += [self.period.eq(total), losses.eq(0)]
        return m
