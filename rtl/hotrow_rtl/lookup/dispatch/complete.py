"""Completion of lookup commands, in order."""

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import Status
from ...interfaces.records import PLANNED, WriteClient, engine_outcome, outcome
from ..planner.plan_lists import plan_counts
from ..splitter.sample_partition import counted_samples
from .in_flight import Unit, lookup_job
from .result_addresses import RESULT_WRITERS, STRIPED_LIST, list_count

# The fields of the report that the stream of each unit fills.
REPORTS = {
    (Unit.BATCH, "batch_outcome"): (
        "status", "error_index", "lookups", "hits", "misses", "unique", "refused"),
    (Unit.SCAN, "scan_outcome"): ("entries",),
    (Unit.LIST, "list_outcome"): (
        "status", "error_index", "hits", "misses", "entries", "refused"),
}


class LookupComplete(wiring.Component):
    """Report the outcome of a command when its unit and its result lists have ended.

    A fault of a list becomes the status if the unit reported none: that of the first list in the
    order of the operands. PARITY takes precedence over every status of a unit or list.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    jobs : In(stream(lookup_job(config)))
        Accepted in the first cycle of their outcome.
    batch_outcome, scan_outcome, list_outcome : In(stream(outcome))
    sample_counts : In(stream(counted_samples()))
        One per SPLIT.
    plan_counts : In(stream(plan_counts))
        With a planner: one per PLAN.
    written : In(outcome of WriteClient).array(len(RESULT_WRITERS))
    corrupt : In(1)
        A slot table is corrupt: commands end with PARITY.
    fault, address, ended
        To and from `ResultAddresses`.
    outcome : Out(stream(engine_outcome(config)))

    Timing
    ------
    The outcome follows the last stream that it waits for by 2 cycles, a list by 3, and 2 more if a
    list had a fault. The outcome of a refused batch follows its job by 1 cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        outcomes = stream.Signature(outcome)
        super().__init__({
            "jobs": In(stream.Signature(lookup_job(config))),
            "batch_outcome": In(outcomes),
            "scan_outcome": In(outcomes),
            "list_outcome": In(outcomes),
            "sample_counts": In(stream.Signature(counted_samples())),
            **({"plan_counts": In(stream.Signature(plan_counts))} if config.planner else {}),
            "written": In(WriteClient(config).members["outcome"].signature.flip()).array(
                len(RESULT_WRITERS)),
            "corrupt": In(1),
            "fault": Out(stream.Signature(range(list_count(config)))),
            "address": In(config.address_width),
            "ended": Out(1),
            "outcome": Out(stream.Signature(engine_outcome(config))),
        })

    def elaborate(self, platform):
        m = Module()
        job, report = self.jobs, Signal(engine_outcome(self.config))
        written, faults, complete, failed, first_fault, fault_idx = self._writes(m)
        job_done, counted, fault_idx_q = Signal(), Signal(), Signal.like(fault_idx)
        # Timing: the values of the report are separate from the states, so that its registers have
        # enables without logic.
        update = Signal(report.shape())
        load, load_popular, load_fault, load_address = (Signal(name=name) for name in (
            "load", "load_popular", "load_fault", "load_address"))
        m.d.comb += [self.fault.p.eq(fault_idx_q), self.outcome.p.eq(report)]
        with m.FSM(name="completion"):
            with m.State("UNIT"):
                for (unit, name), fields in REPORTS.items():
                    with m.If(job.valid & (job.p.unit == unit)):
                        reported = getattr(self, name)
                        m.d.comb += [
                            reported.ready.eq(1),
                            load.eq(reported.valid),
                            *(update[field].eq(reported.p[field]) for field in fields),
                        ]
                        with m.If(reported.valid):
                            m.next = "LISTS"
                with m.If(job.valid & (job.p.unit == Unit.NONE)):
                    m.d.comb += [load.eq(1), update.status.eq(job.p.status),
                                 update.error_index.eq(job.p.error_index)]
                    m.next = "REPORT"
            with m.State("LISTS"):
                with m.If(job.p.splits & ~counted):
                    m.d.comb += self.sample_counts.ready.eq(1)
                    m.d.sync += counted.eq(self.sample_counts.valid)
                    m.d.comb += load_popular.eq(self.sample_counts.valid)
                if self.config.planner:
                    counts = self.plan_counts
                    with m.Elif(job.p.plans & ~counted):
                        m.d.comb += counts.ready.eq(1)
                        m.d.sync += counted.eq(counts.valid)
                        with m.If(counts.valid):
                            m.d.sync += [report[name].eq(counts.p[name])
                                         for name, _ in plan_counts]
                with m.Elif(complete):
                    m.next = "REPORT"
                    with m.If(self.corrupt):
                        m.d.comb += [update.status.eq(Status.PARITY), load_fault.eq(1)]
                    with m.Elif((report.status == Status.OK) & failed):
                        m.d.comb += [
                            update.status.eq(Status.SLVERR - 1 + first_fault), load_fault.eq(1)]
                        m.d.sync += fault_idx_q.eq(fault_idx)
                        m.next = "FAULT"
            with m.State("FAULT"):
                m.d.comb += self.fault.valid.eq(1)
                with m.If(self.fault.ready):
                    m.next = "ADDRESS"
            with m.State("ADDRESS"):
                m.d.comb += load_address.eq(1)
                m.next = "REPORT"
            with m.State("REPORT"):
                m.d.comb += self.outcome.valid.eq(1)
                m.d.sync += job_done.eq(1)
                with m.If(~job_done):
                    m.d.comb += [job.ready.eq(1), self.ended.eq(job.p.unit != Unit.NONE)]
                    m.d.sync += [written.eq(0), faults.eq(0), counted.eq(0)]
                with m.If(self.outcome.ready):
                    m.d.sync += job_done.eq(0)
                    m.next = "UNIT"
        with m.If(load):
            m.d.sync += [report[name].eq(update[name])
                         for name in dict.fromkeys(sum(REPORTS.values(), ()))]
        with m.If(load_fault):
            m.d.sync += report.status.eq(update.status)
        with m.If(load_popular):
            m.d.sync += report.popular.eq(self.sample_counts.p.popular)
        with m.If(load_address):
            m.d.sync += report.error_address.eq(self.address)
        with m.If(self.outcome.valid & self.outcome.ready):
            m.d.sync += [report.popular.eq(0), report.error_address.eq(0)]
            if self.config.planner:
                m.d.sync += [report[name].eq(0) for name in PLANNED]
        return m

    def _writes(self, m):
        """Collect the outcomes of the result writers of a job.

        Returns the registers `written` and `faults`, by number in `RESULT_WRITERS`, and one cycle
        later whether all are written, whether one failed, the first fault and the number of its
        list.
        """
        job = self.jobs
        # With one lane the last writer writes only the victims of a PLAN.
        opened = Cat(job.p.opened, Const(0, 1))[:len(RESULT_WRITERS)]
        if self.config.striped_misses:
            opened = Cat(job.p.opened[:STRIPED_LIST + 1], job.p.opened[STRIPED_LIST])
        written, awaited = Signal(len(RESULT_WRITERS)), Signal(len(RESULT_WRITERS))
        faults = Signal(data.ArrayLayout(self.written[0].p.fault.shape(), len(RESULT_WRITERS)))
        for number, port in enumerate(self.written):
            fire = port.valid & awaited[number]
            m.d.comb += port.ready.eq(awaited[number])
            m.d.sync += awaited[number].eq(
                job.valid & opened[number] & ~written[number] & ~fire)
            with m.If(fire):
                m.d.sync += [written[number].eq(1), faults[number].eq(port.p.fault)]
        # Timing: registered, since the result ports are far apart.
        complete, failed = Signal(), Signal()
        first_fault, fault_idx = Signal.like(faults[0]), Signal.like(self.fault.p)
        m.d.sync += [
            complete.eq(written == opened), failed.eq(faults.as_value().any()),
            first_fault.eq(0)]
        for number, fault in reversed(list(enumerate(faults))):
            with m.If(fault.any()):
                is_last = self.config.planner and number > STRIPED_LIST
                m.d.sync += [
                    first_fault.eq(fault),
                    fault_idx.eq(STRIPED_LIST + job.p.plans if is_last
                                 else min(number, STRIPED_LIST)),
                ]
        return written, faults, complete, failed, first_fault, fault_idx
