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
        Cycles to wait; 0 waits for ever.
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
        quiet = Signal(32, init=1)  # cycles, the one in progress included
        with m.If(self.waiting & ~self.progress):
            m.d.sync += quiet.eq(quiet + 1)
            with m.If((self.timeout != 0) & (quiet >= self.timeout)):
                m.d.sync += self.stopped.eq(1)
        with m.Else():
            m.d.sync += quiet.eq(1)
        with m.If(self.restart):
            m.d.sync += [self.stopped.eq(0), quiet.eq(1)]
        return m
