"""Order of events of the commands of the lookup queue."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .bank_layouts import STATUS_WIDTH
from .batch_tag import batch_kind
from .command_intake import CommandIntake
from .config import EPOCH_WIDTH, Config
from .contract import AllFlag, BatchFlag, Opcode, Status
from .fifo import RamFifo
from .layouts import PLANNED, Deposit, Engine, command, engine_outcome, outcome
from .length_sum import sum_width
from .lookup_reader import verdict
from .plan_lists import plan_counts
from .plan_sequence import PlannerPort
from .result_addresses import LISTS, ResultAddresses, lists_of
from .sample_lists import batch_samples

# Who writes them: the misses of a SPLIT have two, of which one writes the victims of a PLAN.
DEPOSITS = (*LISTS[:-1], "even_misses", "odd_misses")
UNDER_WAY = 4  # commands between their start and their outcome


class Unit(enum.Enum, shape=2):
    """Who tells how a command ended."""

    NONE = 0  # the batch was refused
    TALLY = 1
    SCANS = 2
    ENTRIES = 3


# What each unit tells, from its stream.
REPORTS = {
    (Unit.TALLY, "tallied"): (
        "status", "error_index", "lookups", "hits", "misses", "unique", "refused"),
    (Unit.SCANS, "scanned"): ("entries",),
    (Unit.ENTRIES, "listed"): ("status", "error_index", "hits", "misses", "entries", "refused"),
}


class LookupControl(wiring.Component):
    """Start commands in order, and give their outcomes in order.

    A batch goes to the reader first. Its result sequences are opened once its lengths were found
    sound; then the next batch may start, before the outcome of this one. Every other command is
    taken when all before it have ended, and runs alone.

    An outcome is given when unit and sequences have ended; a fault of a sequence is its status if
    nothing else went wrong, the first in the order of the operands if several had one.

    Batches to be split are numbered for the miss table, and once the numbers are used up it is
    cleared before the next command starts.

    PLAN and MARK run alone. Their batches are judged before anything is read; one that is planned
    counts as such once its lengths were found sound.

    Parameters
    ----------
    config : Config

    Members
    -------
    engine : In(Engine(config))
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
    tallied, scanned, listed : In(stream(outcome))
    parted : In(stream)
        How many samples of a batch that was split are `popular`.
    requests : Out(request of Deposit).array(len(lists_of(config)))
        By number there, see `ResultAddresses`; that of the misses is for both who write them.
    landed : In(outcome of Deposit).array(5)
        By number in `DEPOSITS`.
    planner : Out(PlannerPort())
        On a card that has one.

    Timing
    ------
    A command costs 4 cycles besides its units and its results' way to memory, 5 with a batch, 2
    more if it is marked, 8 more if it is planned, and as many more as there are lists if it has
    one. Its parts come while those before it are under way, else in `COMMAND_PARTS` + 1 cycles.
    """

    def __init__(self, config: Config):
        self.config, self.lists = config, lists_of(config)
        deposit = Deposit(config).members
        commands, outcomes = stream.Signature(command), stream.Signature(outcome)
        super().__init__({
            "engine": In(Engine(config)),
            "cleared": In(1),
            "edits": Out(1),
            "reader": Out(commands),
            "scans": Out(commands),
            "entries": Out(commands),
            "clear_misses": Out(1),
            "kinds": Out(stream.Signature(batch_kind())),
            "sizes": Out(stream.Signature(batch_samples(config))),
            "verdict": In(stream.Signature(verdict)),
            "tallied": In(outcomes),
            "scanned": In(outcomes),
            "listed": In(outcomes),
            "parted": In(stream.Signature(data.StructLayout({"popular": 32}))),
            "requests": Out(deposit["request"].signature).array(len(self.lists)),
            "landed": In(deposit["outcome"].signature.flip()).array(len(DEPOSITS)),
            **({"planner": Out(PlannerPort())} if config.planner else {}),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.under_way = under_way = RamFifo(data.StructLayout({
            "unit": Unit,
            "splits": 1,
            **({"plans": 1} if self.config.planner else {}),
            "opened": len(self.lists),
            "status": STATUS_WIDTH,
            "error_index": max(sum_width(self.config), 32 if self.config.planner else 0),
        }), UNDER_WAY)
        m.submodules.addresses = addresses = ResultAddresses(self.config)
        for mine, request in zip(self.requests, addresses.requests):
            connect(m, addresses=request, own=flipped(mine))
        reporting, nothing = Signal(), Signal()
        m.d.comb += nothing.eq((under_way.level == 0) & ~under_way.i.valid & ~reporting)
        m.submodules.intake = intake = CommandIntake()
        connect(m, flipped(self.engine.command), intake.parts)
        self._start(m, intake.command, under_way.i, nothing, addresses.start)
        self._end(m, under_way.o, reporting, addresses)
        return m

    def _start(self, m, given, job, nothing, lists):
        order = given.p
        opcode, is_batch = order.opcode, Signal()
        opens, alone = Signal(len(self.lists)), Signal(Unit)
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
                       for number, name in enumerate(self.lists))]
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
            empty.eq(nothing),
            may_start.eq(given.valid & self.cleared & ~used_up
                         & (nothing | is_batch & next_is_batch)),
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
                    judge(self.planner.judged, read)
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

    def _end(self, m, job, reporting, addresses):
        report = Signal(engine_outcome(self.config))
        dropped = Signal()  # the job is, when it is told
        misses = LISTS.index("misses")
        # By number in `DEPOSITS`, as the next two.
        opened = Cat(job.p.opened[:misses + 1], job.p.opened[misses])
        landed = Signal(len(DEPOSITS))
        faults = Signal(data.ArrayLayout(self.landed[0].p.fault.shape(), len(DEPOSITS)))
        for number, port in enumerate(self.landed):
            m.d.comb += port.ready.eq(job.valid & opened[number] & ~landed[number])
            with m.If(port.valid & port.ready):
                m.d.sync += [landed[number].eq(1), faults[number].eq(port.p.fault)]

        parted, faulty = Signal(), Signal.like(addresses.fault.p)
        # What goes into the report, and when: apart from the states, for enables without logic.
        told = Signal(report.shape())
        tell, tell_popular, tell_fault, tell_address = (Signal(name=name) for name in (
            "tell", "tell_popular", "tell_fault", "tell_address"))
        m.d.comb += [addresses.fault.p.eq(faulty), self.engine.outcome.p.eq(report)]
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
                    counted = self.planner.counted
                    with m.Elif(job.p.plans & ~parted):
                        m.d.comb += counted.ready.eq(1)
                        m.d.sync += parted.eq(counted.valid)
                        with m.If(counted.valid):
                            m.d.sync += [report[name].eq(counted.p[name])
                                         for name, _ in plan_counts]
                with m.Elif(landed == opened):
                    m.next = "REPORT"
                    with m.If((report.status == Status.OK) & faults.as_value().any()):
                        for number, fault in reversed(list(enumerate(faults))):
                            with m.If(fault.any()):
                                m.d.comb += told.status.eq(Status.SLVERR - 1 + fault)
                                victims = self.config.planner and number > misses
                                m.d.sync += faulty.eq(
                                    misses + job.p.plans if victims else min(number, misses))
                        m.d.comb += tell_fault.eq(1)
                        m.next = "FAULT"
            with m.State("FAULT"):
                m.d.comb += addresses.fault.valid.eq(1)
                with m.If(addresses.fault.ready):
                    m.next = "ADDRESS"
            with m.State("ADDRESS"):
                m.d.comb += tell_address.eq(1)
                m.next = "REPORT"
            with m.State("REPORT"):
                m.d.comb += [self.engine.outcome.valid.eq(1), reporting.eq(1)]
                m.d.sync += dropped.eq(1)
                with m.If(~dropped):
                    m.d.comb += [job.ready.eq(1), addresses.ended.eq(job.p.unit != Unit.NONE)]
                    m.d.sync += [landed.eq(0), faults.eq(0), parted.eq(0)]
                with m.If(self.engine.outcome.ready):
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
            m.d.sync += report.error_address.eq(addresses.address)
        with m.If(self.engine.outcome.valid & self.engine.outcome.ready):
            m.d.sync += [report.popular.eq(0), report.error_address.eq(0)]
            if self.config.planner:
                m.d.sync += [report[name].eq(0) for name in PLANNED]
