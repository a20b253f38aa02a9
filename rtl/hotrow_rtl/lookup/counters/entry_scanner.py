"""Entry walk: every entry of the access counters in turn."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from .bank import CounterBank


def pace(config: Config) -> int:
    """Cycles from one request to the next of all banks: no set comes again too early."""
    return -(-CounterBank.distance // (config.counter_sets // config.banks))


class EntryScanner(wiring.Component):
    """Ask the banks for all entries: all banks at a time, or one after the other.

    All banks are asked for the same way of all sets, then for the next way. One after the other
    they are asked in the order of sets, with the bank in the lowest bits, and of ways.

    Parameters
    ----------
    config : Config

    Members
    -------
    begin : In(1)
        A pulse begins a walk; it cuts short one in progress.
    alone : In(1)
        One bank after the other. Constant during a walk.
    again : In(1)
        The walk begins anew at its end.
    go : In(1)
        A request may be made.
    asks : Out(1)
        A request is made.
    last : Out(1)
        It is that of the last entry.
    banks : Out(config.banks)
        That are asked.
    bank, set, ways : Out
        For what; of the banks one by one which.

    Timing
    ------
    The first request comes the cycle after `begin`, and then one a cycle while `go`; all banks
    are asked every `pace(config)` cycles.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "begin": In(1),
            "alone": In(1),
            "again": In(1),
            "go": In(1),
            "asks": Out(1),
            "last": Out(1),
            "banks": Out(config.banks),
            "bank": Out(log2(config.banks)),
            "set": Out(log2(config.counter_sets // config.banks)),
            "ways": Out(config.counter_ways, init=1),
        })

    def elaborate(self, platform):
        m = Module()
        c, going, due = self.config, Signal(), Signal(init=1)
        last_way, last_bank, last_set = self.ways[-1], self.bank.all(), self.set.all()
        next_set = Signal()
        m.d.comb += [
            self.asks.eq(going & due & self.go),
            self.banks.eq(Mux(self.alone, 1 << self.bank, ~0)),
            next_set.eq(~self.alone | last_way & last_bank),
            self.last.eq(last_way & last_set & (~self.alone | last_bank)),
        ]
        with m.If(self.asks):
            m.d.sync += [
                self.bank.eq(self.bank + (self.alone & last_way)),
                self.set.eq(self.set + next_set),
                going.eq(~self.last | self.again),
            ]
            with m.If(self.alone | last_set):
                m.d.sync += self.ways.eq(Cat(last_way, self.ways))
        if pace(c) > 1:
            since = Signal(range(pace(c)))
            m.d.comb += due.eq(self.alone | (since == 0))
            m.d.sync += since.eq(Mux(since == pace(c) - 1, 0, since + 1))
            with m.If(self.begin):
                m.d.sync += since.eq(0)
        else:
            m.d.comb += due.eq(1)
        with m.If(self.begin):
            m.d.sync += [going.eq(1), self.bank.eq(0), self.set.eq(0), self.ways.eq(1)]
        return m
