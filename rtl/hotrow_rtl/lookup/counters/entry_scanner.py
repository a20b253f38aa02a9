"""Entry scanner: walks through the entries of the access counters."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from .bank import CounterBank


def pace(config: Config) -> int:
    """Cycles between two requests to all banks, so that no set recurs within its distance."""
    return -(-CounterBank.distance // (config.counter_sets // config.banks))


class EntryScanner(wiring.Component):
    """Request every entry, from all banks at once or from one bank at a time.

    Requests to all banks take the same way of all sets, then the next way. Requests to single banks
    follow the order of sets, numbered over all banks with the bank in the lowest bits, then of
    ways.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    begin : In(1)
        A pulse starts a scan; it aborts one in progress.
    single : In(1)
        Request one bank at a time. Constant during a scan.
    repeat : In(1)
        At its end the scan starts over.
    enable : In(1)
        A request is allowed.
    request : Out(1)
    last : Out(1)
        The request is for the last entry.
    banks : Out(config.banks)
        Banks of the request.
    bank, set, ways : Out
        Entry of the request; `bank` if it is `single`.

    Timing
    ------
    The first request follows `begin` by one cycle, then one a cycle while `enable`; requests to all
    banks every `pace(config)` cycles.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "begin": In(1),
            "single": In(1),
            "repeat": In(1),
            "enable": In(1),
            "request": Out(1),
            "last": Out(1),
            "banks": Out(config.banks),
            "bank": Out(log2(config.banks)),
            "set": Out(log2(config.counter_sets // config.banks)),
            "ways": Out(config.counter_ways, init=1),
        })

    def elaborate(self, platform):
        m = Module()
        c, busy, due = self.config, Signal(), Signal(init=1)
        last_way, last_bank, last_set = self.ways[-1], self.bank.all(), self.set.all()
        next_set = Signal()
        m.d.comb += [
            self.request.eq(busy & due & self.enable),
            self.banks.eq(Mux(self.single, 1 << self.bank, ~0)),
            next_set.eq(~self.single | last_way & last_bank),
            self.last.eq(last_way & last_set & (~self.single | last_bank)),
        ]
        with m.If(self.request):
            m.d.sync += [
                self.bank.eq(self.bank + (self.single & last_way)),
                self.set.eq(self.set + next_set),
                busy.eq(~self.last | self.repeat),
            ]
            with m.If(self.single | last_set):
                m.d.sync += self.ways.eq(Cat(last_way, self.ways))
        if pace(c) > 1:
            since = Signal(range(pace(c)))
            m.d.comb += due.eq(self.single | (since == 0))
            m.d.sync += since.eq(Mux(since == pace(c) - 1, 0, since + 1))
            with m.If(self.begin):
                m.d.sync += since.eq(0)
        else:
            m.d.comb += due.eq(1)
        with m.If(self.begin):
            m.d.sync += [busy.eq(1), self.bank.eq(0), self.set.eq(0), self.ways.eq(1)]
        return m
