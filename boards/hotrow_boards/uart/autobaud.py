"""Measure the bit rate of a serial line from its sync bytes."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .layouts import MIN_PERIOD, PERIOD_BITS, SYNC_INTERVALS

_STEPS = 3  # of a measurement
_MAX_ERRORS = 4  # consecutive errors after which the rate is measured again


class Autobaud(wiring.Component):
    """Measure the period of a line on sync bytes: 0x55, a falling edge every two bits.

    Payload bytes can show the same edges, so the unit keeps a measured rate until several errors
    occur without a good frame between them.

    Source: the sync byte of LIN (ISO 17987-3), from which its responders derive their rate.

    Parameters
    ----------
    period : int
        Period before the first measurement.

    Attributes
    ----------
    line : In(1)
        Received level, synchronised.
    good, bad : In(1)
        High for a cycle after a valid frame; after an invalid frame or byte.
    period : Out(PERIOD_BITS)
        Cycles of eight bits.

    Timing
    ------
    `period` changes 4 cycles after the last of four equal intervals.
    """

    def __init__(self, period=MIN_PERIOD):
        super().__init__({
            "line": In(1), "good": In(1), "bad": In(1),
            "period": Out(PERIOD_BITS, init=period),
        })

    def elaborate(self, platform):
        m = Module()
        line_q, falling_edge = Signal(init=1), Signal()
        interval = Signal(PERIOD_BITS - 1)  # cycles since the last falling edge, saturating
        intervals = Signal(data.ArrayLayout(len(interval), SYNC_INTERVALS))
        total = Signal(PERIOD_BITS + 1)
        uniform, in_range = Signal(), Signal()
        step = Signal(_STEPS)  # one-hot after a falling edge: store, add, compare
        errors = Signal(range(_MAX_ERRORS + 1), init=_MAX_ERRORS)
        m.d.comb += falling_edge.eq(line_q & ~self.line)
        m.d.sync += [
            line_q.eq(self.line),
            step.eq(Cat(falling_edge, step[:-1])),
            total.eq(sum(intervals[idx] for idx in range(SYNC_INTERVALS))),
            # Each interval is within an eighth of the mean.
            uniform.eq(Cat(
                ((intervals[idx] << 5) <= 9 * total) & ((intervals[idx] << 5) >= 7 * total)
                for idx in range(SYNC_INTERVALS)).all()),
            in_range.eq((total >= MIN_PERIOD) & ~total[PERIOD_BITS:].any()),
        ]
        with m.If(falling_edge):
            m.d.sync += [
                Cat(intervals).eq(Cat(Cat(intervals)[len(interval):], interval)),
                interval.eq(1),
            ]
        with m.Elif(~interval.all()):
            m.d.sync += interval.eq(interval + 1)
        with m.If(self.good):
            m.d.sync += errors.eq(0)
        with m.Elif(self.bad & (errors != _MAX_ERRORS)):
            m.d.sync += errors.eq(errors + 1)
        with m.If(step[-1] & uniform & in_range & (errors == _MAX_ERRORS)):
            m.d.sync += [self.period.eq(total), errors.eq(0)]
        return m
