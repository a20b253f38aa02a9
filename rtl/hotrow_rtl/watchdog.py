"""Watchdog: tell when a memory port waits for a memory that makes no progress."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Watchdog(wiring.Component):
    """Stop a port after too many cycles without progress.

    Members
    -------
    waiting : In(1)
        The port waits for the memory: something is offered to it or in flight.
    progress : In(1)
        A handshake on any channel of the port.
    timeout : In(32)
        Cycles to wait; 0 waits for ever. Holds still from the cycle before `waiting` on.
    restart : In(1)
        A pulse lowers `stopped`.
    stopped : Out(1)
        High from `timeout` cycles without progress on, until `restart`.
    """

    waiting: In(1)
    progress: In(1)
    timeout: In(32)
    restart: In(1)
    stopped: Out(1)

    def elaborate(self, platform):
        m = Module()
        # The comparison takes a cycle of its own: what it compares is two cycles ahead.
        ahead, due = Signal(32, init=2), Signal()
        some, one = Signal(), Signal()  # of the timeout: it is not 0, it is 1
        upper = self.timeout[1:].any()
        m.d.comb += one.eq(~upper & self.timeout[0])
        m.d.sync += some.eq(upper | self.timeout[0])
        with m.If(self.waiting & ~self.progress & ~self.restart):
            m.d.sync += [
                ahead.eq(ahead + 1),
                due.eq((ahead >= self.timeout) & some),
                self.stopped.eq(self.stopped | due),
            ]
        with m.Else():
            m.d.sync += [ahead.eq(2), due.eq(one)]
        with m.If(self.restart):
            m.d.sync += self.stopped.eq(0)
        return m
