"""Lookup start: the commands of the lookup queue begin, in order."""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import EPOCH_WIDTH, Config
from ...contract.encoding import AllFlag, BatchFlag, Opcode, Status
from ...interfaces.records import command
from ..combiner.batch_tagger import batch_kind
from ..planner.sequencer import PlannerPort
from ..reader.reader import verdict
from ..splitter.sample_partition import batch_samples
from .in_flight import Unit, lookup_job
from .result_addresses import LISTS, lists_of, opened_lists


class LookupIssue(wiring.Component):
    """Tell each unit what a command wants of it, and open its lists.

    A batch goes to the reader first. Its lists are opened once its lengths were found sound; then
    the next batch may start, before the end of this one. Every other command is taken when all
    before it have ended, and runs alone.

    Batches to be split are numbered for the miss table, and once the numbers are used up it is
    cleared before the next command starts.

    PLAN and MARK run alone. Their batches are judged before anything is read; one that is planned
    counts as such once its lengths were found sound.

    Parameters
    ----------
    config : Config

    Members
    -------
    command : In(stream(command))
        Taken when it has started, or was refused.
    nothing : In(1)
        No command is between its start and its end.
    cleared : In(1)
        No memory is being cleared: a command may start.
    edits : Out(1)
        INSTALL or REMOVE is in progress: lists and slots are those of `entries`.
    clear_misses : Out(1)
        A pulse empties the miss table.
    reader, scans, entries : Out(stream(command))
    kinds : Out(stream(batch_kind()))
        One per batch that is delivered, in order.
    sizes : Out(stream(batch_samples(config)))
        One per batch that is split, in order.
    verdict : In(stream(verdict))
        Of the reader.
    planner : Out(PlannerPort())
        On a card that has one.
    lists : Out(stream(opened_lists(config)))
    jobs : Out(stream(lookup_job(config)))
        What has started, or was refused. With `lists`, in one cycle, unless it was refused.

    Timing
    ------
    With no other in progress the reader has a batch 3 cycles after its command came, another unit
    its command 4 cycles after it; a batch's lists are opened the cycle after the verdict. PLAN and
    MARK wait for `planner` besides. The next command is taken once all units have theirs.
    """

    def __init__(self, config: Config):
        self.config = config
        commands = stream.Signature(command)
        super().__init__({
            "command": In(commands),
            "nothing": In(1),
            "cleared": In(1),
            "edits": Out(1),
            "clear_misses": Out(1),
            "reader": Out(commands),
            "scans": Out(commands),
            "entries": Out(commands),
            "kinds": Out(stream.Signature(batch_kind())),
            "sizes": Out(stream.Signature(batch_samples(config))),
            "verdict": In(stream.Signature(verdict)),
            **({"planner": Out(PlannerPort())} if config.planner else {}),
            "lists": Out(stream.Signature(opened_lists(config))),
            "jobs": Out(stream.Signature(lookup_job(config))),
        })

    def elaborate(self, platform):
        m = Module()
        given, job, lists = self.command, self.jobs, self.lists
        order = given.p
        opcode, is_batch = order.opcode, Signal()
        opens, alone = Signal(len(lists_of(self.config))), Signal(Unit)
        splits, epoch = Signal(), Signal(EPOCH_WIDTH, init=1)
        used_up = Signal(init=1)  # nothing is known of what the table held before a reset
        m.d.comb += [
            self.reader.p.eq(order),
            self.scans.p.eq(order),
            self.entries.p.eq(order),
            self.sizes.p.samples.eq(order.samples),
            splits.eq(opcode == Opcode.SPLIT),
            self.kinds.p.splits.eq(splits),
            self.kinds.p.epoch.eq(epoch),
            self.kinds.p.counts.eq((opcode == Opcode.OBSERVE)
                                   | (order.flags & BatchFlag.COUNT).any()),
        ]
        reads, planner = is_batch, self.config.planner
        if planner:
            plans, marks = (opcode == each for each in (Opcode.PLAN, Opcode.MARK))
            reads = is_batch | plans | marks
            m.d.comb += [
                self.planner.order.eq(order),
                self.kinds.p.splits.eq(splits | plans | marks),
                job.p.plans.eq(plans),
            ]
        with m.Switch(opcode):
            with m.Case(Opcode.OBSERVE):
                m.d.comb += alone.eq(Unit.TALLY)
            with m.Case(Opcode.SPLIT):
                m.d.comb += [alone.eq(Unit.TALLY), opens.eq(0b1111)]
            if planner:
                with m.Case(Opcode.PLAN):
                    m.d.comb += [alone.eq(Unit.TALLY), opens.eq(0b11111)]
                with m.Case(Opcode.MARK):
                    m.d.comb += alone.eq(Unit.TALLY)
            with m.Case(Opcode.HARVEST):
                m.d.comb += [alone.eq(Unit.SCANS), opens.eq(0b0010)]
            with m.Case(Opcode.INSTALL):
                m.d.comb += [alone.eq(Unit.ENTRIES), opens.eq(0b0001)]
            with m.Case(Opcode.REMOVE):
                m.d.comb += [alone.eq(Unit.ENTRIES),
                             opens.eq((order.flags & AllFlag.ALL) == 0)]
            with m.Default():
                m.d.comb += alone.eq(Unit.SCANS)

        m.d.comb += [lists.p.opened.eq(opens),
                     *(lists.p.addresses[number].eq(order[name])
                       for number, name in enumerate(lists_of(self.config)))]
        with m.If(opcode == Opcode.HARVEST):
            m.d.comb += lists.p.addresses[LISTS.index("popular")].eq(order.destination)

        launched = (self.reader, self.scans, self.entries, self.kinds, self.sizes)
        for port in launched:
            with m.If(port.ready):
                m.d.sync += port.valid.eq(0)

        # Whether the command that waits may start, a cycle ahead, as much of it comes late.
        may_start, empty, next_is_batch = Signal(), Signal(), Signal()
        m.d.comb += next_is_batch.eq(Cat(
            opcode == each for each in (Opcode.OBSERVE, Opcode.SPLIT)).any())
        m.d.sync += [
            empty.eq(self.nothing),
            may_start.eq(given.valid & self.cleared & ~used_up
                         & (self.nothing | is_batch & next_is_batch)),
        ]
        def over():
            """The next command may come."""
            m.d.comb += given.ready.eq(1)
            m.next = "IDLE"

        def judge(verdict, go_on):
            """The command is refused, or else goes on."""
            m.d.comb += [
                verdict.ready.eq(job.ready),
                job.valid.eq(verdict.valid & (verdict.p.status != Status.OK)),
                job.p.unit.eq(Unit.NONE),
                job.p.status.eq(verdict.p.status),
                job.p.error_index.eq(verdict.p.error_index),
            ]
            with m.If(verdict.valid & verdict.ready):
                with m.If(verdict.p.status == Status.OK):
                    go_on()
                with m.Else():
                    over()

        def plan_or_launch():
            m.next = "LAUNCH"
            if planner:
                with m.If(plans):
                    m.next = "PLAN"

        def read():
            m.d.sync += self.reader.valid.eq(1)
            m.next = "VERDICT"

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.clear_misses.eq(used_up & empty)
                with m.If(self.clear_misses):
                    m.d.sync += [used_up.eq(0), epoch.eq(1)]
                with m.If(given.valid & may_start & ~used_up):
                    m.d.sync += is_batch.eq(next_is_batch)
                    m.next = "START"
            with m.State("START"):
                m.d.sync += [self.reader.valid.eq(is_batch), self.edits.eq(alone == Unit.ENTRIES)]
                m.next = "LAUNCH"
                with m.If(is_batch):
                    m.next = "VERDICT"
                if planner:
                    m.d.comb += self.planner.start.eq(1)
                    with m.If(plans | marks):
                        m.next = "JUDGE"
            with m.State("VERDICT"):
                judge(self.verdict, plan_or_launch)
            if planner:
                with m.State("JUDGE"):
                    judge(self.planner.verdict, read)
                with m.State("PLAN"):
                    m.d.comb += self.planner.accept.eq(1)
                    m.next = "PLANNED"
                with m.State("PLANNED"):
                    with m.If(self.planner.ready):
                        m.next = "LAUNCH"
            with m.State("LAUNCH"):
                m.d.comb += [
                    lists.valid.eq(job.ready),
                    job.valid.eq(lists.ready),
                    job.p.unit.eq(alone),
                    job.p.splits.eq(splits),
                    job.p.opened.eq(opens),
                ]
                with m.If(job.valid & job.ready):
                    m.d.sync += [
                        self.scans.valid.eq(alone == Unit.SCANS),
                        self.entries.valid.eq(alone == Unit.ENTRIES),
                        self.kinds.valid.eq(reads),
                        self.sizes.valid.eq(splits),
                    ]
                    m.next = "LAUNCHED"
            with m.State("LAUNCHED"):
                with m.If(~Cat(port.valid for port in launched).any()):
                    over()
                    with m.If(splits | plans if planner else splits):
                        m.d.sync += [epoch.eq(epoch + 1), used_up.eq(epoch.all())]
        return m
