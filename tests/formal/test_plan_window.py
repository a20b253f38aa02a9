"""No PLAN waits for a RETIRE: its verdict follows after a fixed number of cycles, whatever the host
writes; and accepted batches stay within the window of held slots."""

from dataclasses import replace

import pytest
from amaranth import Elaboratable, Module, Signal
from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cover
from hotrow_rtl.contract.encoding import Opcode, Status
from hotrow_rtl.lookup.planner.sequencer import PlanSequencer
from hotrow_rtl.lookup.planner.window import PlanWindow

from tests.formal.prover import free_inputs, mutated, opened, verify
from tests.formal.small import SMALL

CONFIG = replace(SMALL, planner=True, stamp_bits=4)


class Verdicts(Elaboratable):
    """Sequencer and window as in `LookupEngine`; the host retires any batch."""

    def __init__(self, window=PlanWindow):
        self.sequence, self.window = PlanSequencer(CONFIG), window(CONFIG)

    def elaborate(self, platform):
        m = Module()
        m.submodules.sequence = sequence = self.sequence
        m.submodules.window = window = self.window
        control, host = sequence.control, window.host
        command, opcode = control.command, Signal(8)
        m.d.comb += opcode.eq(AnySeq(8))
        free_inputs(m, sequence, command, control.start, control.accept, control.verdict.ready,
                    sequence.status, sequence.index, sequence.planned, sequence.retired)
        free_inputs(m, window, window.batch, window.plans, window.accept)
        m.d.comb += [
            sequence.status.eq(window.status), sequence.index.eq(window.index),
            sequence.planned.eq(window.planned), sequence.retired.eq(host.retired),
            window.batch.eq(command.value), window.plans.eq(sequence.plans),
            window.accept.eq(sequence.accept), control.verdict.ready.eq(1),
        ]

        # Commands one by one: each is stable before it starts, gets a verdict, and is accepted.
        plans, marks = (command.opcode == each for each in (Opcode.PLAN, Opcode.MARK))
        starts, accepts, allowed = AnySeq(1), AnySeq(1), Signal()
        waits, since = Signal(), Signal(range(PlanWindow.latency + 2))
        value, kind, flags = Signal(32), Signal.like(command.opcode), Signal.like(command.flags)
        idle = Signal()
        m.d.comb += [
            command.value.eq(value), command.opcode.eq(kind), command.flags.eq(flags),
            control.start.eq(starts & idle), control.accept.eq(accepts & allowed),
            Assume(~window.clear | ~idle & ~waits & ~allowed),
        ]
        verdict = control.verdict
        with m.If(control.start):
            m.d.sync += [idle.eq(0), waits.eq(plans | marks), since.eq(0)]
        with m.Elif(~idle & ~waits & ~allowed):  # the next command
            m.d.sync += [value.eq(AnySeq(32)), kind.eq(AnySeq(len(kind))),
                         flags.eq(AnySeq(len(flags))), idle.eq(1)]
        with m.If(waits):
            m.d.sync += since.eq(since + 1)
        with m.If(verdict.valid):
            m.d.sync += [waits.eq(0), allowed.eq(plans & (verdict.p.status == Status.OK))]
        with m.If(control.accept):
            m.d.sync += allowed.eq(0)

        wrote = Signal()  # an access to a register takes several cycles
        m.d.sync += wrote.eq(host.write)
        m.d.comb += Assume(~(host.write & wrote))

        most = CONFIG.sweep_batches
        granted = verdict.valid & (verdict.p.status == Status.OK)
        setting = sequence.setting
        ahead = (setting.batch - setting.retired)[:CONFIG.stamp_bits]
        unretired, kept = (window.planned - host.retired)[:32], Signal(32)
        m.d.sync += kept.eq(host.retired)
        own = opened(window)
        m.d.comb += [
            Assert(verdict.valid == (waits & (since == PlanWindow.latency - 1))),
            Assert(~granted | (ahead != 0) & (ahead <= most)),
            Assert(unretired <= most),
            Assert(~allowed | (value == (window.planned + 1)[:32])
                   & ((value - host.retired)[:32] <= most)),
            Assert(~waits | (since < PlanWindow.latency)),
            Assert(~own.writes | (own.unretired <= unretired)),
            Assert(~own.writes | wrote),
            Assert(~(waits & idle) & ~(allowed & idle) & ~(waits & allowed)),
            Cover(granted & plans & (unretired == most - 1)),
            Cover(verdict.valid & plans & (verdict.p.status == Status.WINDOW)),
            Cover(granted & marks & (host.retired != kept)),
        ]
        return m


BUGS = {
    "one batch too many": ("window > self.config.sweep_batches",
                           "window > self.config.sweep_batches + 1"),
    "retired before it is planned": ("writes & (forward <= unretired)",
                                     "writes & (forward <= unretired + 1)"),
}


def test_no_plan_waits_for_a_retirement(tmp_path):
    assert verify(Verdicts(), tmp_path, depth=6) == "PASS"


def test_verdicts_are_reached(tmp_path):
    assert verify(Verdicts(), tmp_path, mode="cover", depth=40, timeout=1500) == "PASS"


@pytest.mark.parametrize("bug", BUGS)
def test_bug(bug, tmp_path):
    window = mutated(PlanWindow, *BUGS[bug])
    assert verify(Verdicts(window), tmp_path, mode="bmc", depth=40, timeout=1500) == "FAIL"
