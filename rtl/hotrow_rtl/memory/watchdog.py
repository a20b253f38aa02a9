"""Watchdog of a memory port: detects a memory that makes no progress."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Watchdog(wiring.Component):
    """Stop a port after too many cycles without progress.

    Attributes
    ----------
    waiting : In(1)
        The port waits for the memory: it asserts a `valid`, or has a burst in flight.
    progress : In(1)
        A handshake on any channel of the port.
    timeout : In(32)
        Cycles to wait; 0 waits without limit. Stable from the cycle before `waiting` on.
    restart : In(1)
        A pulse clears `stopped`.
    stopped : Out(1)
        Set after `timeout` cycles without progress, until `restart`.
    """

    waiting: In(1)
    progress: In(1)
    timeout: In(32)
    restart: In(1)
    stopped: Out(1)

    def elaborate(self, platform):
        m = Module()
        # Timing: the port's handshakes are far from the counter, so the counter is enabled a cycle
        # late, and the comparison is registered. `ahead` is the count three cycles later.
        quiet, quiet_q = Signal(), Signal()
        ahead, due = Signal(32, init=3), Signal()
        is_set, is_1, is_2 = Signal(), Signal(), Signal()  # of `timeout`
        upper = self.timeout[2:].any()
        m.d.comb += quiet.eq(self.waiting & ~self.progress & ~self.restart)
        m.d.sync += [
            quiet_q.eq(quiet),
            is_set.eq(self.timeout.any()),
            is_1.eq((self.timeout[:2] == 1) & ~upper),
            is_2.eq((self.timeout[:2] == 2) & ~upper),
        ]
        with m.If(quiet_q):
            m.d.sync += [ahead.eq(ahead + 1), due.eq((ahead >= self.timeout) & is_set)]
        with m.Else():
            m.d.sync += [ahead.eq(3), due.eq(is_2)]
        with m.If(self.restart):
            m.d.sync += self.stopped.eq(0)
        with m.Elif(quiet & (is_1 | quiet_q & due)):
            m.d.sync += self.stopped.eq(1)
        return m
