"""Lookup end: how the commands of the lookup queue ended, in order."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import Status
from ...interfaces.records import PLANNED, WriteClient, engine_outcome, outcome
from ..planner.plan_lists import plan_counts
from ..splitter.sample_partition import counted_samples
from .in_flight import DEPOSITS, Unit, lookup_job
from .result_addresses import LISTS, lists_of

# What each unit tells, from its stream.
REPORTS = {
    (Unit.TALLY, "tallied"): (
        "status", "error_index", "lookups", "hits", "misses", "unique", "refused"),
    (Unit.SCANS, "scanned"): ("entries",),
    (Unit.ENTRIES, "listed"): ("status", "error_index", "hits", "misses", "entries", "refused"),
}


class LookupComplete(wiring.Component):
    """Give a command's outcome when its unit and its lists have ended.

    A fault of a list is its status if nothing else went wrong, the first in the order of the
    operands if several had one.

    Parameters
    ----------
    config : Config

    Members
    -------
    jobs : In(stream(lookup_job(config)))
        Taken with the first cycle of their outcome.
    tallied, scanned, listed : In(stream(outcome))
    parted : In(stream(counted_samples()))
    counted : In(stream(plan_counts))
        On a card with a planner, once per batch that is planned.
    landed : In(outcome of WriteClient).array(5)
        By number in `DEPOSITS`.
    fault, address, ended
        Of the `ResultAddresses`.
    outcome : Out(stream(engine_outcome(config)))

    Timing
    ------
    The outcome is given 2 cycles after the last of what it waits for, 3 if that is a list, that of
    a batch refused 1 cycle after its job, and 2 cycles later if a list had a fault.
    """

    def __init__(self, config: Config):
        self.config = config
        outcomes = stream.Signature(outcome)
        super().__init__({
            "jobs": In(stream.Signature(lookup_job(config))),
            "tallied": In(outcomes),
            "scanned": In(outcomes),
            "listed": In(outcomes),
            "parted": In(stream.Signature(counted_samples())),
            **({"counted": In(stream.Signature(plan_counts))} if config.planner else {}),
            "landed": In(WriteClient(config).members["outcome"].signature.flip()).array(len(DEPOSITS)),
            "fault": Out(stream.Signature(range(len(lists_of(config))))),
            "address": In(config.address_width),
            "ended": Out(1),
            "outcome": Out(stream.Signature(engine_outcome(config))),
        })

    def elaborate(self, platform):
        m = Module()
        job = self.jobs
        report = Signal(engine_outcome(self.config))
        dropped = Signal()  # the job is, when it is told
        misses = LISTS.index("misses")
        # By number in `DEPOSITS`, as the next two.
        opened = Cat(job.p.opened[:misses + 1], job.p.opened[misses])
        landed = Signal(len(DEPOSITS))
        faults = Signal(data.ArrayLayout(self.landed[0].p.fault.shape(), len(DEPOSITS)))
        awaited = Signal(len(DEPOSITS))  # told a cycle late, too
        for number, port in enumerate(self.landed):
            lands = port.valid & awaited[number]
            m.d.comb += port.ready.eq(awaited[number])
            m.d.sync += awaited[number].eq(job.valid & opened[number] & ~landed[number] & ~lands)
            with m.If(lands):
                m.d.sync += [landed[number].eq(1), faults[number].eq(port.p.fault)]
        # A cycle late, for ports are far apart: whether all have landed, and the first fault.
        complete, first, at_fault = Signal(), Signal.like(faults[0]), Signal.like(self.fault.p)
        failed = Signal()
        m.d.sync += [
            complete.eq(landed == opened), failed.eq(faults.as_value().any()), first.eq(0)]
        for number, fault in reversed(list(enumerate(faults))):
            with m.If(fault.any()):
                victims = self.config.planner and number > misses
                m.d.sync += [
                    first.eq(fault),
                    at_fault.eq(misses + job.p.plans if victims else min(number, misses)),
                ]

        parted, faulty = Signal(), Signal.like(self.fault.p)
        # What goes into the report, and when: apart from the states, for enables without logic.
        told = Signal(report.shape())
        tell, tell_popular, tell_fault, tell_address = (Signal(name=name) for name in (
            "tell", "tell_popular", "tell_fault", "tell_address"))
        m.d.comb += [self.fault.p.eq(faulty), self.outcome.p.eq(report)]
        with m.FSM(name="ending"):
            with m.State("WORK"):
                for (unit, ended), tells in REPORTS.items():
                    with m.If(job.valid & (job.p.unit == unit)):
                        ending = getattr(self, ended)
                        m.d.comb += ending.ready.eq(1)
                        m.d.comb += [told[name].eq(ending.p[name]) for name in tells]
                        m.d.comb += tell.eq(ending.valid)
                        with m.If(ending.valid):
                            m.next = "LAND"
                with m.If(job.valid & (job.p.unit == Unit.NONE)):
                    m.d.comb += [tell.eq(1), told.status.eq(job.p.status),
                                 told.error_index.eq(job.p.error_index)]
                    m.next = "REPORT"
            with m.State("LAND"):
                with m.If(job.p.splits & ~parted):
                    m.d.comb += self.parted.ready.eq(1)
                    m.d.sync += parted.eq(self.parted.valid)
                    m.d.comb += tell_popular.eq(self.parted.valid)
                if self.config.planner:
                    counted = self.counted
                    with m.Elif(job.p.plans & ~parted):
                        m.d.comb += counted.ready.eq(1)
                        m.d.sync += parted.eq(counted.valid)
                        with m.If(counted.valid):
                            m.d.sync += [report[name].eq(counted.p[name])
                                         for name, _ in plan_counts]
                with m.Elif(complete):
                    m.next = "REPORT"
                    with m.If((report.status == Status.OK) & failed):
                        m.d.comb += [told.status.eq(Status.SLVERR - 1 + first), tell_fault.eq(1)]
                        m.d.sync += faulty.eq(at_fault)
                        m.next = "FAULT"
            with m.State("FAULT"):
                m.d.comb += self.fault.valid.eq(1)
                with m.If(self.fault.ready):
                    m.next = "ADDRESS"
            with m.State("ADDRESS"):
                m.d.comb += tell_address.eq(1)
                m.next = "REPORT"
            with m.State("REPORT"):
                m.d.comb += self.outcome.valid.eq(1)
                m.d.sync += dropped.eq(1)
                with m.If(~dropped):
                    m.d.comb += [job.ready.eq(1), self.ended.eq(job.p.unit != Unit.NONE)]
                    m.d.sync += [landed.eq(0), faults.eq(0), parted.eq(0)]
                with m.If(self.outcome.ready):
                    m.d.sync += dropped.eq(0)
                    m.next = "WORK"
        with m.If(tell):
            m.d.sync += [report[name].eq(told[name])
                         for name in dict.fromkeys(sum(REPORTS.values(), ()))]
        with m.If(tell_fault):
            m.d.sync += report.status.eq(told.status)
        with m.If(tell_popular):
            m.d.sync += report.popular.eq(self.parted.p.popular)
        with m.If(tell_address):
            m.d.sync += report.error_address.eq(self.address)
        with m.If(self.outcome.valid & self.outcome.ready):
            m.d.sync += [report.popular.eq(0), report.error_address.eq(0)]
            if self.config.planner:
                m.d.sync += [report[name].eq(0) for name in PLANNED]
        return m
