"""The middle of the widest window of delays in which reads come right."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class WidestWindow(wiring.Component):
    """Keep the longest run of right delays at one bitslip, the first among equals.

    Parameters
    ----------
    delays, bitslips : int

    Members
    -------
    clear : In(1)
        Forget all.
    note : In(1)
        Take what follows into account; delays of a bitslip come in order, from 0.
    delay, bitslip, right : In
    found : Out(1)
        There is one; the others are valid then.
    middle, best_bitslip : Out
        The middle delay of it, the earlier of two.

    Timing
    ------
    A cycle after `note`.
    """

    def __init__(self, delays, bitslips):
        self.delays, self.bitslips = delays, bitslips
        super().__init__({
            "clear": In(1), "note": In(1),
            "delay": In(range(delays)), "bitslip": In(range(bitslips)), "right": In(1),
            "found": Out(1), "middle": Out(range(delays)), "best_bitslip": Out(range(bitslips)),
        })

    def elaborate(self, platform):
        m = Module()
        run, longer = Signal(range(self.delays + 1)), Signal(range(self.delays + 1))
        longest, last = Signal.like(run), Signal(range(self.delays))
        m.d.comb += [
            longer.eq(Mux(self.delay == 0, 0, run) + 1),
            self.found.eq(longest != 0),
            self.middle.eq(last - (longest >> 1)),
        ]
        with m.If(self.note):
            m.d.sync += run.eq(Mux(self.right, longer, 0))
            with m.If(self.right & (longer > longest)):
                m.d.sync += [longest.eq(longer), last.eq(self.delay),
                             self.best_bitslip.eq(self.bitslip)]
        with m.If(self.clear):
            m.d.sync += longest.eq(0)
        return m
