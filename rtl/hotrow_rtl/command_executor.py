"""One command after the other: check it, carry it out or hand it to an engine, report it."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .command_check import checked_command
from .config import Config
from .contract import Opcode, Status
from .events import EventPort
from .layouts import Engine, command, completion, outcome


class CommandExecutor(wiring.Component):
    """Run the commands of one queue strictly in order.

    NOP, FENCE, WAIT and SIGNAL are carried out here; the others go to the engine.

    Parameters
    ----------
    config : Config

    Members
    -------
    commands : In(stream(command))
    unchecked : Out(stream(command))
    checked : In(stream(checked_command))
        The way to the check and back.
    engine : Out(Engine())
    events : Out(EventPort(config))
    completions : Out(stream(completion))
        One per command, all but `sequence` filled in.
    cycle : In(64)
    enable : In(1)
        While low no further command is taken up.
    halt_on_error, resume, abort : In(1)
        As in `QueueControl`.
    busy, halted, waiting : Out(1)
    status : Out(8)
        Of the completion that halted the queue, else OK.

    Timing
    ------
    3 cycles per command beside its check and its effects; a WAIT looks at its event every 4 cycles
    or more.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "commands": In(stream.Signature(command)),
            "unchecked": Out(stream.Signature(command)),
            "checked": In(stream.Signature(checked_command)),
            "engine": Out(Engine()),
            "events": Out(EventPort(config)),
            "completions": Out(stream.Signature(completion)),
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
        tag, opcode, aborted = Signal(32), Signal(8), Signal()
        start, end = Signal(64), Signal(64)
        reached = Signal()
        m.d.comb += [
            self.unchecked.p.eq(self.commands.p),
            engine.command.p.eq(checked.p.command),
            request.p.event.eq(checked.p.command.event),
            request.p.value.eq(checked.p.command.value),
            request.p.write.eq(opcode == Opcode.SIGNAL),
            # Half-range comparison: a counter may pass a value and wrap.
            reached.eq(~(reply.p - checked.p.command.value)[31]),
            report.p.tag.eq(tag),
            report.p.opcode.eq(opcode),
            report.p.start.eq(start),
            report.p.end.eq(end),
            self.busy.eq(1),
        ]
        with m.If(self.resume):
            m.d.sync += [self.halted.eq(0), self.status.eq(Status.OK)]

        def ended():
            m.d.sync += end.eq(self.cycle)
            m.next = "REPORT"

        def reported():
            with m.If(self.halt_on_error & (report.p.status != Status.OK)):
                m.d.sync += [self.halted.eq(1), self.status.eq(report.p.status)]
            m.next = "IDLE"

        with m.FSM():
            with m.State("IDLE"):
                willing = self.enable & ~self.halted
                m.d.comb += [
                    self.unchecked.valid.eq(self.commands.valid & willing),
                    self.commands.ready.eq(self.unchecked.ready & willing),
                    self.busy.eq(0),
                ]
                m.d.sync += [
                    tag.eq(self.commands.p.tag),
                    opcode.eq(self.commands.p.opcode),
                    start.eq(self.cycle),
                    aborted.eq(0),
                ]
                with m.If(self.unchecked.valid & self.unchecked.ready):
                    m.next = "DISPATCH"
            with m.State("DISPATCH"):
                with m.If(checked.valid & (checked.p.status != Status.OK)):
                    ended()
                with m.Elif(checked.valid):
                    with m.Switch(opcode):
                        with m.Case(Opcode.NOP, Opcode.FENCE):
                            ended()  # what came before has landed, or it would not be reported
                        with m.Case(Opcode.WAIT, Opcode.SIGNAL):
                            m.next = "ASK EVENT"
                        with m.Default():
                            m.d.comb += [
                                engine.command.valid.eq(1),
                                checked.ready.eq(engine.command.ready),
                            ]
                            with m.If(engine.command.ready):
                                m.next = "ENGINE"
            with m.State("ASK EVENT"):
                m.d.comb += request.valid.eq(1)
                self._wait(m, opcode, aborted)
                with m.If(request.ready):
                    m.next = "EVENT"
            with m.State("EVENT"):
                m.d.comb += reply.ready.eq(1)
                self._wait(m, opcode, aborted)
                with m.If(reply.valid & (request.p.write | reached | aborted)):
                    ended()
                with m.Elif(reply.valid):
                    m.next = "ASK EVENT"
            with m.State("REPORT"):
                m.d.comb += [
                    report.valid.eq(1),
                    report.p.status.eq(Mux(aborted, Status.ABORTED, checked.p.status)),
                    report.p.error_index.eq(checked.p.error_index),
                    report.p.error_address.eq(checked.p.error_address),
                    checked.ready.eq(report.ready),
                ]
                with m.If(report.ready):
                    reported()
            with m.State("ENGINE"):
                with m.If(engine.outcome.valid):
                    ended()
                    m.next = "REPORT ENGINE"
            with m.State("REPORT ENGINE"):
                m.d.comb += [
                    report.valid.eq(1),
                    *(report.p[name].eq(engine.outcome.p[name]) for name, _ in outcome),
                    engine.outcome.ready.eq(report.ready),
                ]
                with m.If(report.ready):
                    reported()
        return m

    def _wait(self, m, opcode, aborted):
        with m.If(opcode == Opcode.WAIT):
            m.d.comb += self.waiting.eq(1)
            with m.If(self.abort):
                m.d.sync += aborted.eq(1)
