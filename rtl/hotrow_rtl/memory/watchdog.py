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
        # What moves in a port is far from the counter, which hears of it a cycle late; and the
        # comparison takes a cycle of its own: what it compares is three cycles ahead.
        quiet, counts = Signal(), Signal()
        ahead, due = Signal(32, init=3), Signal()
        some, one, two = Signal(), Signal(), Signal()  # of the timeout: it is not 0, it is 1, or 2
        upper = self.timeout[2:].any()
        m.d.comb += quiet.eq(self.waiting & ~self.progress & ~self.restart)
        m.d.sync += [
            counts.eq(quiet),
            some.eq(self.timeout.any()),
            one.eq((self.timeout[:2] == 1) & ~upper),
            two.eq((self.timeout[:2] == 2) & ~upper),
        ]
        with m.If(counts):
            m.d.sync += [ahead.eq(ahead + 1), due.eq((ahead >= self.timeout) & some)]
        with m.Else():
            m.d.sync += [ahead.eq(3), due.eq(two)]
        with m.If(self.restart):
            m.d.sync += self.stopped.eq(0)
        with m.Elif(quiet & (one | counts & due)):
            m.d.sync += self.stopped.eq(1)
        return m
