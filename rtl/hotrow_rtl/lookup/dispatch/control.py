"""Control of the commands of the lookup queue: issue and completion, both in order."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...interfaces.command_assembler import CommandAssembler
from ...interfaces.records import BATCHES_IN_FLIGHT, Engine, WriteClient
from ...primitives.fifo import RamFifo
from .complete import LookupComplete
from .in_flight import lookup_job
from .issue import LookupIssue
from .result_addresses import ResultAddresses, list_count


class LookupControl(wiring.Component):
    """Start commands, up to `BATCHES_IN_FLIGHT` at a time, and report their outcomes in order.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    engine : In(Engine(config))
    cleared, list_mode, clear_misses, reader, scan, row_list, kinds, sizes, verdict, planner
        See `LookupIssue`.
    batch_outcome, scan_outcome, list_outcome, sample_counts, plan_counts, written, corrupt
        See `LookupComplete`.
    requests : Out(request of WriteClient).array(list_count(config))
        See `ResultAddresses`. Both writers of the misses share one.

    Timing
    ------
    A command whose parts have come takes 6 cycles to its outcome, beyond its units and the way of
    its results to memory: 7 with a batch, 2 more for MARK, 8 more for PLAN, and
    `list_count(config)` - 1 more if it opens any list. Its parts come while earlier commands run;
    on an idle card they take a cycle each.
    """

    def __init__(self, config: Config):
        self.config = config
        planner = (("planner",), ("plan_counts",)) if config.planner else ((), ())
        self._issue_ports = ("reader", "scan", "row_list", "kinds", "sizes", "verdict", *planner[0])
        self._complete_ports = (
            "batch_outcome", "scan_outcome", "list_outcome", "sample_counts", *planner[1])
        self._issue, self._complete = LookupIssue(config), LookupComplete(config)
        issue, complete = self._issue.signature.members, self._complete.signature.members
        super().__init__({
            "engine": In(Engine(config)),
            **{name: issue[name]
               for name in ("cleared", "list_mode", "clear_misses", *self._issue_ports)},
            **{name: complete[name] for name in (*self._complete_ports, "written", "corrupt")},
            "requests": Out(WriteClient(config).members["request"].signature).array(
                list_count(config)),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.assembler = assembler = CommandAssembler()
        m.submodules.issue = issue = self._issue
        m.submodules.jobs = jobs = RamFifo(lookup_job(config), BATCHES_IN_FLIGHT)
        m.submodules.addresses = addresses = ResultAddresses(config)
        m.submodules.complete = complete = self._complete
        for unit, names in ((issue, self._issue_ports), (complete, self._complete_ports)):
            for name in names:
                connect(m, flipped(getattr(self, name)), getattr(unit, name))
        connect(m, flipped(self.engine.command), assembler.parts)
        connect(m, assembler=assembler.command, issue=issue.command)
        connect(m, issue=issue.lists, addresses=addresses.start)
        connect(m, issue=issue.jobs, jobs=jobs.i)
        connect(m, jobs=jobs.o, complete=complete.jobs)
        connect(m, complete=complete.fault, addresses=addresses.fault)
        connect(m, complete=complete.outcome, own=flipped(self.engine.outcome))
        m.d.comb += [
            issue.cleared.eq(self.cleared),
            self.list_mode.eq(issue.list_mode),
            self.clear_misses.eq(issue.clear_misses),
            issue.idle.eq(
                (jobs.level == 0) & ~issue.jobs.valid & ~self.engine.outcome.valid),
            complete.corrupt.eq(self.corrupt),
            complete.address.eq(addresses.address),
            addresses.ended.eq(complete.ended),
        ]
        for own, port in (*zip(self.requests, addresses.requests, strict=True),
                          *zip(self.written, complete.written, strict=True)):
            connect(m, flipped(own), port)
        return m
