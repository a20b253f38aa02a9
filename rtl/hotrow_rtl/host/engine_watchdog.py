"""Watchdog of the engines: detects a queue whose command makes no progress."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2


class EngineWatchdog(wiring.Component):
    """Report a queue that waits for its engine while none of the engine's memory ports moves.

    A memory port that waits for the memory has a watchdog of its own, which ends the command. This
    one is slower, so that it reports only what no port reports. All queues share one clock of
    periods; a queue is stalled if it waits without progress for a whole period.

    Parameters
    ----------
    config : Config
    queues : int

    Attributes
    ----------
    timeout : In(32)
        Cycles without progress after which a memory port stops; 0 waits without limit.
    waiting : In(queues)
        The queue has commands in its engine, or one in transfer to it.
    progress : In(queues)
        A handshake of the engine at any of its ports.
    stalled : Out(queues)
        A pulse.

    Timing
    ------
    `stalled` follows one to two periods after the last progress. A period is the larger of
    2**`quiet_log2` and `slack` * `timeout` cycles, and 2 cycles: that many cycles an engine may
    compute without a handshake, as when it scans all counters for each bit of their counts.
    """

    def __init__(self, config: Config, queues: int):
        rows = config.counter_sets + config.directory_sets + config.batch_samples
        self.quiet_log2 = log2(64 * rows) + 1
        # A burst makes progress at its address, each of its beats and its response.
        self.slack = 4 * config.burst_beats
        super().__init__({
            "timeout": In(32),
            "waiting": In(queues),
            "progress": In(queues),
            "stalled": Out(queues),
        })

    def elaborate(self, platform):
        m = Module()
        count, due = Signal(32 + log2(self.slack)), Signal()
        seen = Signal.like(self.waiting)  # the queue has waited since the period began
        still = self.waiting & ~self.progress
        m.d.sync += [
            count.eq(count + 1),
            due.eq((count[log2(self.slack):] >= self.timeout) & count[self.quiet_log2:].any()
                   & self.timeout.any()),
        ]
        m.d.comb += self.stalled.eq(Mux(due, seen & still, 0))
        with m.If(due):
            m.d.sync += [count.eq(0), due.eq(0), seen.eq(still)]
        with m.Else():
            m.d.sync += seen.eq(seen & still)
        return m
