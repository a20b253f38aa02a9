"""Finds when a DRAM's reads come right, lane by lane, and opens the controller."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .program import Program, Section
from .window import WidestWindow


class Levelling(wiring.Component):
    """Ask for the sections of a bring-up, once after reset.

    Every delay of every bitslip is tried on every lane, and the middle of the widest window set;
    at last all lanes are read once more.

    Parameters
    ----------
    program : Program

    Members
    -------
    sections : Out(stream(Section)), lane : Out, wrong : In(1)
        As of `Sequencer`.
    ready, failed : Out(1)
        The DRAM is there, or a lane has no delay that is right.

    Timing
    ------
    Of each lane, `delays` * `bitslips` probes, each with a section to the next delay.
    """

    def __init__(self, program: Program):
        self.program = program
        super().__init__({
            "sections": Out(stream.Signature(Section)),
            "lane": Out(range(program.lanes)),
            "wrong": In(1),
            "ready": Out(1), "failed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        program, lane = self.program, self.lane
        m.submodules.window = window = WidestWindow(program.delays, program.bitslips)
        delay, bitslip = Signal(range(program.delays)), Signal(range(program.bitslips))
        last_delay, last_slip = delay == program.delays - 1, bitslip == program.bitslips - 1
        last_lane = lane == program.lanes - 1
        m.d.comb += [window.delay.eq(delay), window.bitslip.eq(bitslip),
                     window.right.eq(~self.wrong)]

        def run(section, following):
            """Ask for a section; a context for what is done at its end, before `following`."""
            m.d.comb += [self.sections.valid.eq(1), self.sections.p.eq(section)]
            with m.If(self.sections.ready):
                m.next = following
            return m.If(self.sections.ready)

        with m.FSM():
            with m.State("WAKE"):
                run(Section.WAKE, "RESTART")
            with m.State("RESTART"):
                with run(Section.RESTART, "TRY"):
                    m.d.sync += [delay.eq(0), bitslip.eq(0)]
                    m.d.comb += window.clear.eq(1)
            with m.State("TRY"):
                with run(Section.PROBE, "NEXT_DELAY"):
                    m.d.comb += window.note.eq(1)
            with m.State("NEXT_DELAY"):
                with run(Section.NEXT_DELAY, "TRY"):
                    m.d.sync += delay.eq(delay + 1)
                    with m.If(last_delay):
                        m.next = "NEXT_SLIP"
            with m.State("NEXT_SLIP"):
                with run(Section.NEXT_SLIP, "TRY"):
                    m.d.sync += [delay.eq(0), bitslip.eq(bitslip + 1)]
                    with m.If(last_slip):
                        m.next = "BACK"
            with m.State("BACK"):
                with m.If(window.found):
                    with run(Section.RESTART, "SET_SLIP"):
                        m.d.sync += [delay.eq(0), bitslip.eq(0)]
                with m.Else():
                    m.next = "REFUSE"
            with m.State("SET_SLIP"):
                with m.If(bitslip == window.best_bitslip):
                    m.next = "SET_DELAY"
                with m.Else():
                    with run(Section.NEXT_SLIP, "SET_SLIP"):
                        m.d.sync += bitslip.eq(bitslip + 1)
            with m.State("SET_DELAY"):
                with m.If(delay != window.middle):
                    with run(Section.NEXT_DELAY, "SET_DELAY"):
                        m.d.sync += delay.eq(delay + 1)
                with m.Else():
                    m.d.sync += lane.eq(lane + 1)
                    m.next = "RESTART"
                    with m.If(last_lane):
                        m.d.sync += lane.eq(0)
                        m.next = "CHECK"
            with m.State("CHECK"):
                with run(Section.PROBE, "CHECK"):
                    m.d.sync += lane.eq(lane + 1)
                    with m.If(self.wrong):
                        m.next = "REFUSE"
                    with m.Elif(last_lane):
                        m.next = "OPEN"
            with m.State("OPEN"):
                run(Section.OPEN, "READY")
            with m.State("REFUSE"):
                run(Section.REFUSE, "FAILED")
            with m.State("READY"):
                m.d.comb += self.ready.eq(1)
            with m.State("FAILED"):
                m.d.comb += self.failed.eq(1)
        return m
