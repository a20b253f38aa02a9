"""Issue of lookup commands, in order."""

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
from .result_addresses import LISTS_OF, list_count, opened_lists

_UNITS = {
    Opcode.OBSERVE: Unit.BATCH,
    Opcode.SPLIT: Unit.BATCH,
    Opcode.PLAN: Unit.BATCH,
    Opcode.MARK: Unit.BATCH,
    Opcode.HARVEST: Unit.SCAN,
    Opcode.DECAY: Unit.SCAN,
    Opcode.INSTALL: Unit.LIST,
    Opcode.REMOVE: Unit.LIST,
}
_PLANNER = (Opcode.PLAN, Opcode.MARK)


class LookupIssue(wiring.Component):
    """Send each command to its units, and open its result lists.

    The reader gets a batch first. Its lists are opened when its lengths have been checked; then
    the next batch may start, before this one ends. Any other command waits until all commands
    before it have ended, and runs alone.

    Batches to be split have an epoch in the miss table. When all epochs are used, the miss table is
    cleared before the next command starts.

    PLAN and MARK run alone. The planner checks their batch before the reader starts; the batch
    counts as planned once its lengths have been checked.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    command : In(stream(command))
        Accepted when it has started or was refused; no command is valid in the cycle after it.
    idle : In(1)
        No command is between its start and its outcome.
    cleared : In(1)
        No memory is being cleared: a command may start.
    list_mode : Out(1)
        INSTALL or REMOVE is in progress: the list port and the slots belong to `row_list`.
    clear_misses : Out(1)
        A pulse clears the miss table.
    reader, scan, row_list : Out(stream(command))
    kinds : Out(stream(batch_kind()))
        One per batch that the reader delivers, in order.
    sizes : Out(stream(batch_samples(config)))
        One per SPLIT, in order.
    verdict : In(stream(verdict))
        From the reader.
    planner : Out(PlannerPort())
        With a planner.
    lists : Out(stream(opened_lists(config)))
    jobs : Out(stream(lookup_job(config)))
        One per command. `lists` fires in the same cycle, unless the command was refused.

    Timing
    ------
    On an idle card the reader gets a batch 3 cycles after its command, any other unit gets
    its command 4 cycles after it if `lists` is ready. The lists of a batch are opened in the cycle
    after its verdict. PLAN and MARK also wait for `planner`. A command is accepted once all units
    have accepted it.
    """

    def __init__(self, config: Config):
        self.config = config
        commands = stream.Signature(command)
        super().__init__({
            "command": In(commands),
            "idle": In(1),
            "cleared": In(1),
            "list_mode": Out(1),
            "clear_misses": Out(1),
            "reader": Out(commands),
            "scan": Out(commands),
            "row_list": Out(commands),
            "kinds": Out(stream.Signature(batch_kind())),
            "sizes": Out(stream.Signature(batch_samples(config))),
            "verdict": In(stream.Signature(verdict)),
            **({"planner": Out(PlannerPort())} if config.planner else {}),
            "lists": Out(stream.Signature(opened_lists(config))),
            "jobs": Out(stream.Signature(lookup_job(config))),
        })

    def elaborate(self, platform):
        m = Module()
        planner, p, job, lists = self.config.planner, self.command.p, self.jobs, self.lists
        is_batch, splits, plans, marks = (Signal(name=name) for name in (
            "is_batch", "splits", "plans", "marks"))
        epoch = Signal(EPOCH_WIDTH, init=1)
        epochs_used = Signal(init=1)  # the miss table is undefined after reset
        unit, opens = self._decode(m)
        m.d.comb += [
            self.reader.p.eq(p),
            self.scan.p.eq(p),
            self.row_list.p.eq(p),
            self.sizes.p.samples.eq(p.samples),
            self.kinds.p.splits.eq(splits | plans | marks),
            self.kinds.p.epoch.eq(epoch),
            self.kinds.p.counts.eq((p.opcode == Opcode.OBSERVE)
                                   | (p.flags & BatchFlag.COUNT).any()),
        ]
        # Timing: the decoded command is registered, while it waits for `may_start`.
        m.d.sync += splits.eq(p.opcode == Opcode.SPLIT)
        if planner:
            m.d.sync += [plans.eq(p.opcode == Opcode.PLAN), marks.eq(p.opcode == Opcode.MARK)]
            m.d.comb += [self.planner.command.eq(p), job.p.plans.eq(plans)]

        units = (self.reader, self.scan, self.row_list, self.kinds, self.sizes)
        for port in units:
            with m.If(port.ready):
                m.d.sync += port.valid.eq(0)

        # Timing: whether the command may start is registered, since `cleared` and `idle` are late.
        may_start, idle_q, next_is_batch = Signal(), Signal(), Signal()
        m.d.comb += next_is_batch.eq(Cat(
            p.opcode == each for each in (Opcode.OBSERVE, Opcode.SPLIT)).any())
        m.d.sync += [
            idle_q.eq(self.idle),
            may_start.eq(self.command.valid & self.cleared & ~epochs_used
                         & (self.idle | is_batch & next_is_batch)),
        ]

        def finish():
            m.d.comb += self.command.ready.eq(1)
            m.next = "IDLE"

        def check(verdict, proceed):
            """Refuse the command by a verdict, or proceed."""
            m.d.comb += [
                verdict.ready.eq(job.ready),
                job.valid.eq(verdict.valid & (verdict.p.status != Status.OK)),
                job.p.unit.eq(Unit.NONE),
                job.p.status.eq(verdict.p.status),
                job.p.error_index.eq(verdict.p.error_index),
            ]
            with m.If(verdict.valid & verdict.ready):
                with m.If(verdict.p.status == Status.OK):
                    proceed()
                with m.Else():
                    finish()

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
                m.d.comb += self.clear_misses.eq(epochs_used & idle_q)
                with m.If(self.clear_misses):
                    m.d.sync += [epochs_used.eq(0), epoch.eq(1)]
                with m.If(self.command.valid & may_start & ~epochs_used):
                    m.d.sync += is_batch.eq(next_is_batch)
                    m.next = "START"
            with m.State("START"):
                m.d.sync += [self.reader.valid.eq(is_batch), self.list_mode.eq(unit == Unit.LIST)]
                m.next = "LAUNCH"
                with m.If(is_batch):
                    m.next = "VERDICT"
                if planner:
                    m.d.comb += self.planner.start.eq(1)
                    with m.If(plans | marks):
                        m.next = "CHECK"
            with m.State("VERDICT"):
                check(self.verdict, plan_or_launch)
            if planner:
                with m.State("CHECK"):
                    check(self.planner.verdict, read)
                with m.State("PLAN"):
                    m.d.comb += self.planner.accept.eq(1)
                    m.next = "PLANNED"
                with m.State("PLANNED"), m.If(self.planner.ready):
                    m.next = "LAUNCH"
            with m.State("LAUNCH"):
                m.d.comb += [
                    lists.valid.eq(job.ready),
                    job.valid.eq(lists.ready),
                    job.p.unit.eq(unit),
                    job.p.splits.eq(splits),
                    job.p.opened.eq(opens),
                ]
                with m.If(job.valid & job.ready):
                    m.d.sync += [
                        self.scan.valid.eq(unit == Unit.SCAN),
                        self.row_list.valid.eq(unit == Unit.LIST),
                        self.kinds.valid.eq(is_batch | plans | marks),
                        self.sizes.valid.eq(splits),
                    ]
                    m.next = "LAUNCHED"
            with m.State("LAUNCHED"), m.If(~Cat(port.valid for port in units).any()):
                finish()
                with m.If(splits | plans):
                    m.d.sync += [epoch.eq(epoch + 1), epochs_used.eq(epoch.all())]
        return m

    def _decode(self, m):
        """(unit of the command, lists that it opens), in registers."""
        p, lists = self.command.p, self.lists.p
        unit, opens = Signal(Unit), Signal(list_count(self.config))
        m.d.sync += [unit.eq(Unit.NONE), opens.eq(0)]
        with m.Switch(p.opcode):
            for opcode, serving in _UNITS.items():
                if self.config.planner or opcode not in _PLANNER:
                    with m.Case(opcode):
                        m.d.sync += [unit.eq(serving), opens.eq(sum(
                            1 << number for number, operand in enumerate(LISTS_OF.get(opcode, ()))
                            if operand))]
        with m.If((p.opcode == Opcode.REMOVE) & (p.flags & AllFlag.ALL).any()):
            m.d.sync += opens.eq(0)
        m.d.comb += [
            lists.opened.eq(opens),
            # The operands of a PLAN are in the same bytes; SPLIT has all but the last.
            *(address.eq(p[operand]) for address, operand in zip(
                lists.addresses, (*LISTS_OF[Opcode.SPLIT], "victims"), strict=False)),
        ]
        with m.If(p.opcode == Opcode.HARVEST):
            m.d.comb += lists.addresses[LISTS_OF[Opcode.HARVEST].index("destination")].eq(
                p.destination)
        return unit, opens
