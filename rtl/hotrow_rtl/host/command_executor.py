"""Executes commands in order: each is checked, executed or sent to an engine, and reported."""

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..contract.encoding import Opcode, Status
from ..interfaces.records import (
    BATCHES_IN_FLIGHT,
    Engine,
    command_part,
    reported_completion,
)
from ..primitives.fifo import RamFifo
from ..primitives.single_entry_fifo import SingleEntryFifo
from .batch_order import BatchOrder, list_range
from .command_validator import checked_command, queued_command
from .event_counters import EventPort


class CommandExecutor(wiring.Component):
    """Run the commands of one queue as if strictly one after the other.

    This unit executes NOP, FENCE, WAIT and SIGNAL; an engine executes the others. A batch may start
    while earlier batches are in flight, so that its ids are fetched early, unless its ids, lengths
    or results share memory with the results of a SPLIT in flight, or an error halts the queue.
    Every other command starts when the queue is idle.

    Parameters
    ----------
    config : Config
    batches : tuple of Opcode
        Commands that may be in flight together.

    Attributes
    ----------
    commands : In(stream(queued_command))
        The command in the validator, which begins its checks when this unit accepts it.
    checked : In(stream(checked_command))
        The result of the checks.
    ranges : In(stream(list_range(config)))
        The lists of the command under check.
    parts : In(stream(command_part))
        The parts, for the engine, of a command that passed the checks.
    engine : Out(Engine(config))
    events : Out(EventPort(config))
    completions : Out(stream(reported_completion(config)))
        One per command.
    cycle : In(64)
    enable : In(1)
        While low no further command is accepted, from the second cycle on.
    halt_on_error, resume, abort : In(1)
        See `QueueControl`.
    busy, halted, waiting : Out(1)
    status : Out(8)
        Of the completion that halted the queue, else OK.

    Timing
    ------
    Beside checks and execution 4 cycles per command, and two for each of its parts if it is sent to
    the engine. A WAIT polls its event every 5 cycles or more.
    """

    def __init__(self, config: Config, batches=()):
        self.config, self.batches = config, batches
        super().__init__({
            "commands": In(stream.Signature(queued_command)),
            "checked": In(stream.Signature(checked_command)),
            "ranges": In(stream.Signature(list_range(config))),
            "parts": In(stream.Signature(command_part)),
            "engine": Out(Engine(config)),
            "events": Out(EventPort(config)),
            "completions": Out(stream.Signature(reported_completion(config))),
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
        request, reply = self.events.request, self.events.reply
        opcode, aborted, end = checked.p.opcode, Signal(), Signal(64)
        reached, idle, alone, part_sent = Signal(), Signal(), Signal(), Signal()
        # Commands from acceptance to completion.
        reported_q = Signal()  # a completion was accepted in the previous cycle
        entry = data.StructLayout({"tag": 32, "opcode": 8, "start": 64})
        m.submodules.in_flight = in_flight = (
            RamFifo(entry, BATCHES_IN_FLIGHT) if self.batches else SingleEntryFifo(entry))
        m.d.comb += [
            engine.command.p.eq(self.parts.p),
            request.p.event.eq(checked.p.event),
            request.p.value.eq(checked.p.value),
            request.p.write.eq(opcode == Opcode.SIGNAL),
            in_flight.i.p.tag.eq(self.commands.p.tag),
            in_flight.i.p.opcode.eq(self.commands.p.opcode),
            in_flight.i.p.start.eq(self.cycle),
            *(report.p[name].eq(in_flight.o.p[name]) for name in ("tag", "opcode", "start")),
            report.p.end.eq(end),
            report.p.outcome.eq(engine.outcome.p),
            report.p.check.eq(checked.p.check),
            in_flight.o.ready.eq(reported_q),
            idle.eq(in_flight.level == 0),
            alone.eq((in_flight.level == 1) & in_flight.o.valid),
            self.busy.eq(~idle),
        ]
        enabled = Signal()
        m.d.sync += [
            reported_q.eq(report.valid & report.ready),  # Timing: registers, as is the next
            part_sent.eq(engine.command.valid & engine.command.ready),
            enabled.eq(self.enable),
        ]
        with m.If(self.resume):
            m.d.sync += [self.halted.eq(0), self.status.eq(Status.OK)]

        def ended():
            m.d.sync += end.eq(self.cycle)
            m.next = "REPORT"

        def reported(status):
            with m.If(self.halt_on_error & (status != Status.OK)):
                m.d.sync += [self.halted.eq(1), self.status.eq(status)]

        overlaps, depends = self._may_overlap(m, in_flight), self._depends(m, in_flight)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += aborted.eq(0)
                with m.If(self.commands.valid & enabled & ~self.halted & (idle | overlaps)):
                    m.next = "ACCEPT"
            with m.State("ACCEPT"):  # Timing: registers the decision before it enables `in_flight`
                m.d.comb += [self.commands.ready.eq(1), in_flight.i.valid.eq(1)]
                m.next = "DISPATCH"
            with m.State("DISPATCH"):
                with m.If(checked.valid & (checked.p.check.status != Status.OK)), m.If(alone):
                    ended()
                with m.If(checked.valid & (checked.p.check.status == Status.OK)), m.Switch(opcode):
                    with m.Case(Opcode.NOP, Opcode.FENCE):
                        ended()  # earlier commands have completed
                    with m.Case(Opcode.WAIT, Opcode.SIGNAL):
                        m.next = "REQUEST EVENT"
                    with m.Default(), m.If(alone | ~depends):
                        m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += [
                    engine.command.valid.eq(self.parts.valid & ~part_sent),
                    self.parts.ready.eq(part_sent),
                    checked.ready.eq(part_sent & self.parts.p.last),
                ]
                with m.If(checked.ready):
                    m.next = "IDLE"
            with m.State("REQUEST EVENT"):
                m.d.comb += request.valid.eq(1)
                self._wait(m, opcode, aborted)
                with m.If(request.ready):
                    m.next = "EVENT"
            with m.State("EVENT"):
                m.d.comb += reply.ready.eq(1)
                self._wait(m, opcode, aborted)
                # Half-range comparison: a counter may pass a value and wrap.
                m.d.sync += reached.eq(~(reply.p - checked.p.value)[31])
                with m.If(reply.valid):
                    m.next = "COMPARED"
            with m.State("COMPARED"):
                self._wait(m, opcode, aborted)
                with m.If(request.p.write | reached | aborted):
                    ended()
                with m.Else():
                    m.next = "REQUEST EVENT"
            with m.State("REPORT"):
                m.d.comb += [
                    report.valid.eq(1),
                    checked.ready.eq(report.ready),
                ]
                with m.If(aborted):
                    m.d.comb += report.p.check.status.eq(Status.ABORTED)
                with m.If(report.ready):
                    reported(report.p.check.status)
                    m.next = "IDLE"

        # The other FSM reports only while no command is in the engine.
        with m.FSM(name="engine_fsm"):
            with m.State("ENGINE"), m.If(engine.outcome.valid & in_flight.o.valid & ~reported_q):
                m.d.sync += end.eq(self.cycle)
                m.next = "REPORT ENGINE"
            with m.State("REPORT ENGINE"):
                m.d.comb += [
                    report.valid.eq(1),
                    report.p.by_engine.eq(1),
                    engine.outcome.ready.eq(report.ready),
                ]
                with m.If(report.ready):
                    reported(report.p.outcome.status)
                    m.next = "ENGINE"
        return m

    def _may_overlap(self, m, in_flight):
        """High if the next command may start while those in flight run."""
        if not self.batches:
            return Const(0)
        is_batch = Cat(self.commands.p.opcode == each for each in self.batches).any()
        only_batches = Signal()  # in flight
        with m.If(in_flight.i.valid):
            m.d.sync += only_batches.eq(is_batch)
        may_overlap = Signal()  # Timing: a register; a command waits for it
        m.d.sync += may_overlap.eq(
            self.commands.valid & is_batch & only_batches & ~self.halt_on_error
            & (in_flight.level < BATCHES_IN_FLIGHT))
        return may_overlap

    def _depends(self, m, in_flight):
        """High if the command that passed its checks uses lists that those in flight write."""
        if not self.batches:
            m.d.comb += self.ranges.ready.eq(1)
            return Const(0)
        m.submodules.order = order = BatchOrder(self.config)
        wiring.connect(m, executor=wiring.flipped(self.ranges), order=order.ranges)
        m.d.comb += [
            order.accepted.eq(in_flight.i.valid),
            order.reported.eq(in_flight.o.valid & in_flight.o.ready),
        ]
        return order.depends

    def _wait(self, m, opcode, aborted):
        with m.If(opcode == Opcode.WAIT):
            m.d.comb += self.waiting.eq(1)
            with m.If(self.abort):
                m.d.sync += aborted.eq(1)
