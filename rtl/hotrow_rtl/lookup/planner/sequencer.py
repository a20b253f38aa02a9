"""Plan sequencer: settings and pulses for the units of the planner, per command."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...contract.encoding import Opcode, PlanFlag
from ...interfaces.lookup_payloads import STATUS_WIDTH, DirectoryOp
from ...interfaces.records import command
from ..directory.payloads import plan_setting
from .window import PlanWindow


class PlannerPort(wiring.Signature):
    """The planner as seen by the control of the lookup engine.

    Attributes
    ----------
    command : Out(command)
        The command in progress.
    start : Out(1)
        A pulse with the first cycle of the next command.
    verdict : In(stream)
        Once per start of a PLAN or MARK: the cause of its refusal, or OK.
    accept : Out(1)
        A pulse: the batch is planned; its rows follow once `ready`.
    ready : In(1)
        High until `accept`, and again when the units are ready for the rows.
    """

    def __init__(self):
        super().__init__({
            "command": Out(command),
            "start": Out(1),
            "verdict": In(stream.Signature(data.StructLayout({
                "status": STATUS_WIDTH, "error_index": 32}))),
            "accept": Out(1),
            "ready": In(1),
        })


class PlanSequencer(wiring.Component):
    """Drive the units of the planner with the setting of the command in progress.

    A command samples the newest retired batch when it starts.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    control : In(PlannerPort())
    status, index, planned, retired : In
        Of the `PlanWindow`.
    plans, accept : Out(1)
        To the `PlanWindow`.
    batch : Out(32)
        Stable from the start of a command to its end, like `op` and `setting`.
    op : Out(DirectoryOp)
        FIND unless the command is PLAN or MARK.
    setting : Out(plan_setting(config))
    begin : Out(1)
        A pulse before the first row of a PLAN.
    sweep : Out(1)
        With `begin`, if the slots are to be swept.
    cleared : In(1)
        No memory is cleared or swept. Low at most 3 cycles after `sweep`.

    Timing
    ------
    The verdict is valid `PlanWindow.latency` cycles after a start. `ready` rises 5 cycles after
    `accept`, or after the sweep.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "control": In(PlannerPort()),
            "status": In(STATUS_WIDTH),
            "index": In(32),
            "planned": In(32),
            "retired": In(32),
            "plans": Out(1),
            "accept": Out(1),
            "batch": Out(32),
            "op": Out(DirectoryOp),
            "setting": Out(plan_setting(config)),
            "begin": Out(1),
            "sweep": Out(1),
            "cleared": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        control, p, verdict = self.control, self.control.command, self.control.verdict
        plans, marks = (p.opcode == each for each in (Opcode.PLAN, Opcode.MARK))
        check_valid, settle = Signal(PlanWindow.latency - 1), Signal(3)
        m.d.comb += [
            self.plans.eq(plans),
            self.accept.eq(control.accept),
            verdict.p.status.eq(self.status),
            verdict.p.error_index.eq(self.index),
        ]
        with m.If(verdict.ready):
            m.d.sync += verdict.valid.eq(0)
        m.d.sync += check_valid.eq(Cat(control.start & (plans | marks), check_valid))
        with m.If(check_valid[-1]):
            m.d.sync += verdict.valid.eq(1)
        setting = self.setting
        with m.If(control.start):
            m.d.sync += [
                self.op.eq(Mux(plans, DirectoryOp.PLAN,
                               Mux(marks, DirectoryOp.MARK, DirectoryOp.FIND))),
                self.batch.eq(Mux(plans | marks, p.value, self.planned)),
                setting.batch.eq(Mux(plans | marks, p.value, self.planned)),
                setting.retired.eq(self.retired),
                setting.policy.eq(p.flags >> log2(PlanFlag.POLICY_LOW)),
                setting.admission.eq(plans & (p.flags & PlanFlag.ADMIT).any()),
                setting.writes.eq((p.flags & PlanFlag.READ_ONLY) == 0),
            ]
        due = ~p.value[:log2(self.config.sweep_batches)].any()
        m.d.sync += [
            self.begin.eq(control.accept),
            self.sweep.eq(control.accept & due),
            settle.eq(Cat(control.accept, settle)),
            control.ready.eq(self.cleared & ~control.accept & ~settle.any()),
        ]
        return m
