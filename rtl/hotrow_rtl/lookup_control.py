"""Order of events of a command of the lookup queue."""

from amaranth import Module, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .contract import AllFlag, Opcode, Status
from .layouts import Deposit, Engine, command, outcome
from .lookup_reader import verdict


class Unit(enum.Enum, shape=2):
    """Who serves a command once its batch, if any, has been found sound."""

    COUNTERS = 0
    ENTRIES = 1
    SPLITTER = 2


DEPOSITS = ("slots", "popular", "nonpopular", "misses")  # in the order of the operands


class LookupControl(wiring.Component):
    """Take one command at a time: reader, verdict, unit and result sequences, outcome.

    Result sequences are opened with the unit, hence only for a batch that is not refused. The
    outcome is given when unit and sequences have ended; a fault of a sequence is its status if
    nothing else went wrong, the first in the order of the operands if several had one.

    Members
    -------
    engine : In(Engine())
    cleared : In(1)
        No memory is being cleared: a command may start.
    unit : Out(Unit)
        Serves the command in progress; `batch` when it has the lookup reader in front.
    batch : Out(1)
    reader, counters, entries, splitter : Out(stream(command))
    verdict : In(stream(verdict))
        Of the reader.
    counted, listed, split : In(stream(outcome))
        Of the units.
    requests : Out(request of Deposit).array(4)
        By number in `DEPOSITS`.
    landed : In(outcome of Deposit).array(4)

    Timing
    ------
    A command costs 3 cycles besides its units and its results' way to memory, 4 with a batch.
    """

    def __init__(self, config: Config):
        deposit = Deposit(config).members
        commands, outcomes = stream.Signature(command), stream.Signature(outcome)
        super().__init__({
            "engine": In(Engine()),
            "cleared": In(1),
            "unit": Out(Unit),
            "batch": Out(1),
            "reader": Out(commands),
            "counters": Out(commands),
            "entries": Out(commands),
            "splitter": Out(commands),
            "verdict": In(stream.Signature(verdict)),
            "counted": In(outcomes),
            "listed": In(outcomes),
            "split": In(outcomes),
            "requests": Out(deposit["request"].signature).array(len(DEPOSITS)),
            "landed": In(deposit["outcome"].signature.flip()).array(len(DEPOSITS)),
        })

    def elaborate(self, platform):
        m = Module()
        order, report = Signal(command), Signal(outcome)
        units = {Unit.COUNTERS: (self.counters, self.counted),
                 Unit.ENTRIES: (self.entries, self.listed),
                 Unit.SPLITTER: (self.splitter, self.split)}
        opens = Signal(len(DEPOSITS))  # sequences that the command uses
        awaited = Signal(len(DEPOSITS))  # of these, not yet ended
        working = Signal()
        faults = Signal(data.ArrayLayout(self.landed[0].p.fault.shape(), len(DEPOSITS)))
        opcode = order.opcode

        m.d.comb += [start.p.eq(order) for start in (self.reader, *(s for s, _ in units.values()))]
        with m.Switch(opcode):
            with m.Case(Opcode.OBSERVE):
                m.d.comb += self.batch.eq(1)
            with m.Case(Opcode.SPLIT):
                m.d.comb += [self.batch.eq(1), self.unit.eq(Unit.SPLITTER), opens.eq(0b1111)]
            with m.Case(Opcode.HARVEST):
                m.d.comb += opens.eq(0b1000)
            with m.Case(Opcode.INSTALL):
                m.d.comb += [self.unit.eq(Unit.ENTRIES), opens.eq(0b0001)]
            with m.Case(Opcode.REMOVE):
                m.d.comb += self.unit.eq(Unit.ENTRIES)
                with m.If((order.flags & AllFlag.ALL) == 0):
                    m.d.comb += opens.eq(0b0001)

        addresses = [order.slots, order.popular, order.nonpopular, Signal(64)]
        m.d.comb += addresses[3].eq(order.misses)
        with m.If(opcode == Opcode.HARVEST):
            m.d.comb += addresses[3].eq(order.destination)

        for start in (self.reader, self.counters, self.entries, self.splitter, *self.requests):
            with m.If(start.ready):
                m.d.sync += start.valid.eq(0)
        for number, (request, landed) in enumerate(zip(self.requests, self.landed)):
            m.d.comb += [request.p.address.eq(addresses[number]), landed.ready.eq(awaited[number])]
            with m.If(landed.valid & landed.ready):
                m.d.sync += [awaited[number].eq(0), faults[number].eq(landed.p.fault)]

        with m.FSM():
            with m.State("Idle"):
                m.d.comb += self.engine.command.ready.eq(self.cleared)
                m.d.sync += [report.eq(0), faults.eq(0)]
                with m.If(self.engine.command.valid & self.cleared):
                    m.d.sync += order.eq(self.engine.command.p)
                    m.next = "Start"
            with m.State("Start"):
                m.d.sync += self.reader.valid.eq(self.batch)
                with m.If(self.batch):
                    m.next = "Verdict"
                with m.Else():
                    m.next = "Dispatch"
            with m.State("Verdict"):
                m.d.comb += self.verdict.ready.eq(1)
                with m.If(self.verdict.valid):
                    m.d.sync += [
                        report.status.eq(self.verdict.p.status),
                        report.error_index.eq(self.verdict.p.error_index),
                    ]
                    m.next = "Report"
                    with m.If(self.verdict.p.status == Status.OK):
                        m.next = "Dispatch"
            with m.State("Dispatch"):
                for unit, (start, _) in units.items():
                    m.d.sync += start.valid.eq(self.unit == unit)
                m.d.sync += [request.valid.eq(opens[number])
                             for number, request in enumerate(self.requests)]
                m.d.sync += [awaited.eq(opens), working.eq(1)]
                m.next = "Work"
            with m.State("Work"):
                for unit, (_, ended) in units.items():
                    with m.If(self.unit == unit):
                        m.d.comb += ended.ready.eq(working)
                        with m.If(ended.valid & working):
                            m.d.sync += [report.eq(ended.p), working.eq(0)]
                with m.If(~working & ~awaited.any()):
                    with m.If(report.status == Status.OK):
                        for number, fault in reversed(list(enumerate(faults))):
                            with m.If(fault.any()):
                                m.d.sync += [
                                    report.status.eq(Status.SLVERR - 1 + fault),
                                    report.error_address.eq(addresses[number]),
                                ]
                    m.next = "Report"
            with m.State("Report"):
                m.d.comb += [self.engine.outcome.valid.eq(1), self.engine.outcome.p.eq(report)]
                with m.If(self.engine.outcome.ready):
                    m.next = "Idle"
        return m
