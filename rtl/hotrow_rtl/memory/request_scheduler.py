"""Take the requests of several clients of a port by turns."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..interfaces.records import ReadClient
from ..primitives.round_robin_arbiter import RoundRobinArbiter
from .bursts import less_width, word_width


class RequestScheduler(wiring.Component):
    """Tell the first and the last bus word of each request, clients in turn.

    Parameters
    ----------
    config : Config
    count : int
        Clients.

    Members
    -------
    requests : In(stream).array(count)
        As of `ReadClient`.
    busy : In(count)
        Clients of which no request is wanted; low until one is taken.
    write : Out(1)
        A request is there; it is taken in the first such cycle without `hold`.
    taken : Out(count)
        One-hot: the client whose request is taken in this cycle.
    number, word, last, less : Out
        Its number, its request's first and last bus word, and how many there are less one.
    hold : In(1)
    clear : In(1)
        Forget the requests that are on their way.

    Timing
    ------
    A request is there 4 cycles after it is valid; one a cycle, every 5 cycles of the same client.
    """

    def __init__(self, config: Config, count):
        self.config, self.count = config, count
        super().__init__({
            "requests": In(ReadClient(config).members["request"].signature).array(count),
            "busy": In(count),
            "write": Out(1),
            "taken": Out(count),
            "number": Out(range(max(2, count))),
            "word": Out(word_width(config)),
            "last": Out(word_width(config)),
            "less": Out(less_width(config)),
            "hold": In(1),
            "clear": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.arbiter = arbiter = RoundRobinArbiter(self.count)
        byte_width = log2(self.config.bus_bytes)
        # Offered, chosen, copied, there: a cycle each, one-hot but the first.
        offered, chosen, copied, there = (
            Signal(self.count, name=name) for name in ("offered", "chosen", "copied", "there"))
        shape = self.requests[0].p.shape()
        given, copy = Signal(shape), Signal(shape, reset_less=True)
        moves = Signal()
        m.d.comb += [
            moves.eq(~self.write | ~self.hold),
            arbiter.requests.eq(offered),
            arbiter.accept.eq(moves),
            self.taken.eq(there & (~self.hold).replicate(self.count)),
            self.last.eq(self.word + self.less),
        ]
        with m.If(moves):
            m.d.sync += [
                chosen.eq(arbiter.grant),
                copied.eq(chosen),
                copy.eq(given),
                there.eq(copied),
                self.write.eq(copied.any()),
                self.word.eq(copy.address >> byte_width),
                self.less.eq((copy.bytes - 1) >> byte_width),
            ]
        for number, request in enumerate(self.requests):
            waits = arbiter.grant[number] | chosen[number] | copied[number] | there[number]
            m.d.comb += request.ready.eq(self.taken[number])
            m.d.sync += offered[number].eq(request.valid & ~self.busy[number] & ~waits)
            with m.If(there[number]):
                m.d.comb += self.number.eq(number)
            with m.If(chosen[number]):
                m.d.comb += given.eq(request.p)
        with m.If(self.clear):
            m.d.sync += [flags.eq(0) for flags in (offered, chosen, copied, there, self.write)]
        return m
