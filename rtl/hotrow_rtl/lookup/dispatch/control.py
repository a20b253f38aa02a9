"""Order of events of the commands of the lookup queue."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...interfaces.command_assembler import CommandAssembler
from ...interfaces.records import Engine, WriteClient
from ...primitives.fifo import RamFifo
from .complete import LookupComplete
from .in_flight import UNDER_WAY, lookup_job
from .issue import LookupIssue
from .result_addresses import ResultAddresses, lists_of


class LookupControl(wiring.Component):
    """Start commands in order, and give their outcomes in order.

    Up to `UNDER_WAY` batches have started and not ended; see `LookupIssue` and `LookupComplete`.

    Parameters
    ----------
    config : Config

    Members
    -------
    engine : In(Engine(config))
    cleared, edits, clear_misses, reader, scans, entries, kinds, sizes, verdict, planner
        As of `LookupIssue`.
    tallied, scanned, listed, parted, counted, landed
        As of `LookupComplete`.
    requests : Out(request of WriteClient).array(len(lists_of(config)))
        By number there, see `ResultAddresses`; that of the misses is for both who write them.

    Timing
    ------
    A command costs 4 cycles besides its units and its results' way to memory, 5 with a batch, 2
    more if it is marked, 8 more if it is planned, and as many more as there are lists if it has
    one. Its parts come while those before it are under way, else in `COMMAND_PARTS` + 1 cycles.
    """

    def __init__(self, config: Config):
        self.config = config
        plans = (("planner",), ("counted",)) if config.planner else ((), ())
        self._of_start = ("reader", "scans", "entries", "kinds", "sizes", "verdict", *plans[0])
        self._of_end = ("tallied", "scanned", "listed", "parted", *plans[1])
        self._start, self._end = LookupIssue(config), LookupComplete(config)
        starts, ends = self._start.signature.members, self._end.signature.members
        super().__init__({
            "engine": In(Engine(config)),
            **{name: starts[name]
               for name in ("cleared", "edits", "clear_misses", *self._of_start)},
            **{name: ends[name] for name in (*self._of_end, "landed")},
            "requests": Out(WriteClient(config).members["request"].signature).array(
                len(lists_of(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.intake = intake = CommandAssembler()
        m.submodules.start = start = self._start
        m.submodules.under_way = under_way = RamFifo(lookup_job(config), UNDER_WAY)
        m.submodules.addresses = addresses = ResultAddresses(config)
        m.submodules.end = end = self._end
        for unit, names in ((start, self._of_start), (end, self._of_end)):
            for name in names:
                connect(m, flipped(getattr(self, name)), getattr(unit, name))
        connect(m, flipped(self.engine.command), intake.parts)
        connect(m, intake=intake.command, start=start.command)
        connect(m, start=start.lists, addresses=addresses.start)
        connect(m, start=start.jobs, jobs=under_way.i)
        connect(m, jobs=under_way.o, end=end.jobs)
        connect(m, end=end.fault, addresses=addresses.fault)
        connect(m, end=end.outcome, own=flipped(self.engine.outcome))
        m.d.comb += [
            start.cleared.eq(self.cleared),
            self.edits.eq(start.edits),
            self.clear_misses.eq(start.clear_misses),
            start.nothing.eq(
                (under_way.level == 0) & ~start.jobs.valid & ~self.engine.outcome.valid),
            end.address.eq(addresses.address),
            addresses.ended.eq(end.ended),
        ]
        for mine, port in (*zip(self.requests, addresses.requests), *zip(self.landed, end.landed)):
            connect(m, flipped(mine), port)
        return m
