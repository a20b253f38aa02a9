"""Find the middle of the widest window of working read delays."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class WidestWindow(wiring.Component):
    """Track the longest run of working delays at one bitslip, the first one on a tie.

    Parameters
    ----------
    delays, bitslips : int

    Attributes
    ----------
    clear : In(1)
        Discard all samples.
    sample : In(1)
        Sample `delay`, `bitslip` and `passed`. The delays of a bitslip must be in order, from 0.
    delay, bitslip, passed : In
    found : Out(1)
        A window exists; `middle` and `best_bitslip` are valid.
    middle, best_bitslip : Out
        The window's bitslip and its middle delay, the lower of two.

    Timing
    ------
    Outputs change a cycle after `sample`.
    """

    def __init__(self, delays, bitslips):
        self.delays, self.bitslips = delays, bitslips
        super().__init__({
            "clear": In(1), "sample": In(1),
            "delay": In(range(delays)), "bitslip": In(range(bitslips)), "passed": In(1),
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
        with m.If(self.sample):
            m.d.sync += run.eq(Mux(self.passed, longer, 0))
            with m.If(self.passed & (longer > longest)):
                m.d.sync += [longest.eq(longer), last.eq(self.delay),
                             self.best_bitslip.eq(self.bitslip)]
        with m.If(self.clear):
            m.d.sync += longest.eq(0)
        return m
