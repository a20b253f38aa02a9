"""Take up commands in order: check each, carry it out or hand it to an engine, report it."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..contract.encoding import BatchFlag, Opcode, Status
from ..interfaces.records import Engine, command, command_part, reported_completion
from ..primitives.fifo import RamFifo
from .command_validator import checked_command
from .event_counters import EventPort

UNDER_WAY = 4  # most batches under way at a time
WRITTEN = ("slots", "popular", "nonpopular", "misses")  # what a SPLIT writes


class OneJob(wiring.Component):
    """A queue, as `RamFifo`, of one payload, into which nothing comes while it is there."""

    def __init__(self, shape):
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "level": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.i.ready.eq(~self.o.valid), self.level.eq(self.o.valid)]
        with m.If(~self.o.valid):
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.p.eq(self.i.p)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m


class CommandExecutor(wiring.Component):
    """Run the commands of one queue as if strictly one after the other.

    NOP, FENCE, WAIT and SIGNAL are carried out here; the others go to the engine. A batch may be
    taken up while earlier batches are under way, so that its ids are fetched behind theirs, unless
    its ids or lengths share a region with what an earlier SPLIT under way writes, or an error
    halts the queue. Every other command waits until the queue is idle.

    Parameters
    ----------
    config : Config
    batches : tuple of Opcode
        Commands that may be under way together; batches that are planned or marked are not.

    Members
    -------
    commands : In(stream(command))
        What the check has on offer, and begins with when it is taken up.
    checked : In(stream(checked_command))
        What came of it.
    parts : In(stream(command_part))
        Those of a command that passed, for the engine.
    engine : Out(Engine(config))
    events : Out(EventPort(config))
    completions : Out(stream(reported_completion))
        One per command, all but `sequence` filled in.
    cycle : In(64)
    enable : In(1)
        While low no further command is taken up, from the second cycle on.
    halt_on_error, resume, abort : In(1)
        As in `QueueControl`.
    busy, halted, waiting : Out(1)
    status : Out(8)
        Of the completion that halted the queue, else OK.

    Timing
    ------
    4 cycles per command beside its check and its effects, and two for each of its parts if it goes
    to the engine; a WAIT looks at its event every 6 cycles or more.
    """

    def __init__(self, config: Config, batches=()):
        self.config, self.batches = config, batches
        super().__init__({
            "commands": In(stream.Signature(command)),
            "checked": In(stream.Signature(checked_command)),
            "parts": In(stream.Signature(command_part)),
            "engine": Out(Engine(config)),
            "events": Out(EventPort(config)),
            "completions": Out(stream.Signature(reported_completion)),
            "cycle": In(64),
            "enable": In(1),
            "halt_on_error": In(1),
            "resume": In(1),
            "abort": In(1),
            "busy": Out(1),
            "halted": Out(1),
            "waiting": Out(1),
            "status": Out(8),
        })

    def elaborate(self, platform):
        m = Module()
        checked, engine, report = self.checked, self.engine, self.completions
        record = report.p.record
        request, reply = self.events.request, self.events.reply
        opcode, aborted, end = checked.p.command.opcode, Signal(), Signal(64)
        reached, idle, alone, handed = Signal(), Signal(), Signal(), Signal()
        # Every command from when it is taken up until it is reported.
        taken = Signal()  # the oldest one's completion was, in the cycle before
        job = data.StructLayout({"tag": 32, "opcode": 8, "start": 64})
        m.submodules.jobs = jobs = RamFifo(job, UNDER_WAY) if self.batches else OneJob(job)
        m.d.comb += [
            engine.command.p.eq(self.parts.p),
            request.p.event.eq(checked.p.command.event),
            request.p.value.eq(checked.p.command.value),
            request.p.write.eq(opcode == Opcode.SIGNAL),
            jobs.i.p.tag.eq(self.commands.p.tag),
            jobs.i.p.opcode.eq(self.commands.p.opcode),
            jobs.i.p.start.eq(self.cycle),
            record.tag.eq(jobs.o.p.tag),
            record.opcode.eq(jobs.o.p.opcode),
            record.start.eq(jobs.o.p.start),
            record.end.eq(end),
            *(record[name].eq(engine.outcome.p[name]) for name, _ in engine.outcome.p.shape()),
            jobs.o.ready.eq(taken),
            idle.eq(jobs.level == 0),
            alone.eq((jobs.level == 1) & jobs.o.valid),
            self.busy.eq(~idle),
        ]
        enabled = Signal()
        m.d.sync += [
            taken.eq(report.valid & report.ready),  # late, as the next, so that it is no long way
            handed.eq(engine.command.valid & engine.command.ready),
            enabled.eq(self.enable),
        ]
        with m.If(self.resume):
            m.d.sync += [self.halted.eq(0), self.status.eq(Status.OK)]

        def ended():
            m.d.sync += end.eq(self.cycle)
            m.next = "REPORT"

        def reported():
            with m.If(self.halt_on_error & (record.status != Status.OK)):
                m.d.sync += [self.halted.eq(1), self.status.eq(record.status)]

        overlaps = self._may_overlap(m, jobs)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += aborted.eq(0)
                with m.If(self.commands.valid & enabled & ~self.halted & (idle | overlaps)):
                    m.next = "TAKE"
            with m.State("TAKE"):  # decided a cycle ahead, so that it is no long way to the jobs
                m.d.comb += [self.commands.ready.eq(1), jobs.i.valid.eq(1)]
                m.next = "DISPATCH"
            with m.State("DISPATCH"):
                with m.If(checked.valid & (checked.p.status != Status.OK)):
                    with m.If(alone):
                        ended()
                with m.Elif(checked.valid):
                    with m.Switch(opcode):
                        with m.Case(Opcode.NOP, Opcode.FENCE):
                            ended()  # what came before has landed, or it would not be reported
                        with m.Case(Opcode.WAIT, Opcode.SIGNAL):
                            m.next = "ASK EVENT"
                        with m.Default():
                            m.next = "HAND OVER"
            with m.State("HAND OVER"):
                m.d.comb += [
                    engine.command.valid.eq(self.parts.valid & ~handed),
                    self.parts.ready.eq(handed),
                    checked.ready.eq(handed & self.parts.p.last),
                ]
                with m.If(checked.ready):
                    m.next = "IDLE"
            with m.State("ASK EVENT"):
                m.d.comb += request.valid.eq(1)
                self._wait(m, opcode, aborted)
                with m.If(request.ready):
                    m.next = "EVENT"
            with m.State("EVENT"):
                m.d.comb += reply.ready.eq(1)
                self._wait(m, opcode, aborted)
                # Half-range comparison: a counter may pass a value and wrap.
                m.d.sync += reached.eq(~(reply.p - checked.p.command.value)[31])
                with m.If(reply.valid):
                    m.next = "EVENT SEEN"
            with m.State("EVENT SEEN"):
                self._wait(m, opcode, aborted)
                with m.If(request.p.write | reached | aborted):
                    ended()
                with m.Else():
                    m.next = "ASK EVENT"
            with m.State("REPORT"):
                m.d.comb += [
                    report.valid.eq(1),
                    record.status.eq(Mux(aborted, Status.ABORTED, checked.p.status)),
                    record.error_index.eq(checked.p.error_index),
                    record.error_address.eq(checked.p.error_address),
                    checked.ready.eq(report.ready),
                ]
                with m.If(report.ready):
                    reported()
                    m.next = "IDLE"

        # A command that is not the engine's, or was refused, is reported when it is alone.
        with m.FSM(name="engine_fsm"):
            with m.State("ENGINE"):
                with m.If(engine.outcome.valid & jobs.o.valid & ~taken):
                    m.d.sync += end.eq(self.cycle)
                    m.next = "REPORT ENGINE"
            with m.State("REPORT ENGINE"):
                m.d.comb += [
                    report.valid.eq(1),
                    report.p.counted.eq(1),
                    engine.outcome.ready.eq(report.ready),
                ]
                with m.If(report.ready):
                    reported()
                    m.next = "ENGINE"
        return m

    def _may_overlap(self, m, jobs):
        """Whether the next command is a batch that only follows batches it does not depend on."""
        if not self.batches:
            return Const(0)
        given = self.commands.p

        handle_width = log2(self.config.handles)  # of those that the check lets pass

        def handle(name):
            return given[name][-16:][:handle_width]

        next_is_batch = Cat(given.opcode == each for each in self.batches).any()
        only_batches = Signal()  # under way
        written = [Signal(data.ArrayLayout(handle_width, len(WRITTEN)), name=f"written{number}")
                   for number in range(UNDER_WAY)]
        known = Signal(UNDER_WAY)  # entries of `written` that belong to a SPLIT under way
        place = Signal(range(UNDER_WAY))
        conflicts = Cat(
            known[number] & (
                (handle("source") == each)
                | (given.flags & BatchFlag.JAGGED).any() & (handle("lengths") == each))
            for number, record in enumerate(written) for each in record)
        with m.If(jobs.level == 0):
            m.d.sync += known.eq(0)
        with m.If(jobs.i.valid):
            m.d.sync += [only_batches.eq(next_is_batch), place.eq(place + 1)]
            with m.Switch(place):
                for number, record in enumerate(written):
                    with m.Case(number):
                        m.d.sync += [
                            known[number].eq(given.opcode == Opcode.SPLIT),
                            *(each.eq(handle(name)) for each, name in zip(record, WRITTEN)),
                        ]
        # Told a cycle late: until a command has been on offer that long it waits.
        may = Signal()
        m.d.sync += may.eq(self.commands.valid & next_is_batch & only_batches
                           & ~self.halt_on_error & (jobs.level < UNDER_WAY) & ~conflicts.any())
        return may

    def _wait(self, m, opcode, aborted):
        with m.If(opcode == Opcode.WAIT):
            m.d.comb += self.waiting.eq(1)
            with m.If(self.abort):
                m.d.sync += aborted.eq(1)
