"""Read levelling of a DRAM: find the read delay of each lane, then open the controller."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .program import Program, Section


class WidestWindow(wiring.Component):
    """Track the longest run of working delays at one bitslip, the first one on a tie.

    Parameters
    ----------
    delays, bitslips : int

    Attributes
    ----------
    clear : In(1)
        Discard all samples.
    sample : In(1)
        Sample `delay`, `bitslip` and `passed`. The delays of a bitslip must be in order, from 0.
    delay, bitslip, passed : In
    found : Out(1)
        A window exists; `middle` and `best_bitslip` are valid.
    middle, best_bitslip : Out
        The window's bitslip and its middle delay, the lower of two.

    Timing
    ------
    Outputs change a cycle after `sample`.
    """

    def __init__(self, delays, bitslips):
        self.delays, self.bitslips = delays, bitslips
        super().__init__({
            "clear": In(1), "sample": In(1),
            "delay": In(range(delays)), "bitslip": In(range(bitslips)), "passed": In(1),
            "found": Out(1), "middle": Out(range(delays)), "best_bitslip": Out(range(bitslips)),
        })

    def elaborate(self, platform):
        m = Module()
        run, longer = Signal(range(self.delays + 1)), Signal(range(self.delays + 1))
        longest, last = Signal.like(run), Signal(range(self.delays))
        m.d.comb += [
            longer.eq(Mux(self.delay == 0, 0, run) + 1),
            self.found.eq(longest != 0),
            self.middle.eq(last - (longest >> 1)),
        ]
        with m.If(self.sample):
            m.d.sync += run.eq(Mux(self.passed, longer, 0))
            with m.If(self.passed & (longer > longest)):
                m.d.sync += [longest.eq(longer), last.eq(self.delay),
                             self.best_bitslip.eq(self.bitslip)]
        with m.If(self.clear):
            m.d.sync += longest.eq(0)
        return m


class Levelling(wiring.Component):
    """Request the sections of a bring-up, once after reset.

    On each lane the unit probes every delay at every bitslip, and that for every delay of the
    writes. It sets the middle of the widest window; at the end it probes all lanes once more.

    Parameters
    ----------
    program : Program

    Attributes
    ----------
    sections : Out(stream(Section)), lane : Out, mismatch : In(1)
        Ports of `Sequencer`.
    ready, failed : Out(1)
        The DRAM works; a lane has no working delay.

    Timing
    ------
    `delays` * `bitslips` * `writes` probes per lane, each followed by a section that sets the next
    delay.
    """

    def __init__(self, program: Program):
        self.program = program
        super().__init__({
            "sections": Out(stream.Signature(Section)),
            "lane": Out(range(program.lanes)),
            "mismatch": In(1),
            "ready": Out(1), "failed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        program, lane = self.program, self.lane
        slips = program.bitslips * program.writes  # the upper bits of `bitslip` are of the writes
        m.submodules.window = window = WidestWindow(program.delays, slips)
        delay, bitslip = Signal(range(program.delays)), Signal(range(slips))
        last_delay, last_slip = delay == program.delays - 1, bitslip == slips - 1
        wraps = (bitslip % program.bitslips == program.bitslips - 1) & (program.writes > 1)
        last_lane = lane == program.lanes - 1
        m.d.comb += [window.delay.eq(delay), window.bitslip.eq(bitslip),
                     window.passed.eq(~self.mismatch)]

        def run(section, following):
            """Request a section; the context holds statements for its end, before `following`."""
            m.d.comb += [self.sections.valid.eq(1), self.sections.p.eq(section)]
            with m.If(self.sections.ready):
                m.next = following
            return m.If(self.sections.ready)

        with m.FSM():
            with m.State("WAKE"):
                run(Section.WAKE, "RESTART")
            with m.State("RESTART"), run(Section.RESTART, "TRY"):
                m.d.sync += [delay.eq(0), bitslip.eq(0)]
                m.d.comb += window.clear.eq(1)
            with m.State("TRY"), run(Section.PROBE, "NEXT_DELAY"):
                m.d.comb += window.sample.eq(1)
            with m.State("NEXT_DELAY"), run(Section.NEXT_DELAY, "TRY"):
                m.d.sync += delay.eq(delay + 1)
                with m.If(last_delay):
                    m.next = "NEXT_SLIP"
            with m.State("NEXT_SLIP"), run(Section.NEXT_SLIP, "TRY"):
                m.d.sync += [delay.eq(0), bitslip.eq(bitslip + 1)]
                with m.If(last_slip):
                    m.next = "SET"
                with m.Elif(wraps):
                    m.next = "NEXT_WRITE"
            with m.State("NEXT_WRITE"):
                run(Section.NEXT_WRITE, "TRY")
            with m.State("SET"):
                with m.If(window.found), run(Section.RESTART, "SET_SLIP"):
                    m.d.sync += [delay.eq(0), bitslip.eq(0)]
                with m.Else():
                    m.next = "REFUSE"
            with m.State("SET_SLIP"):
                with m.If(bitslip == window.best_bitslip):
                    m.next = "SET_DELAY"
                with m.Else(), run(Section.NEXT_SLIP, "SET_SLIP"):
                    m.d.sync += bitslip.eq(bitslip + 1)
                    with m.If(wraps):
                        m.next = "SET_WRITE"
            with m.State("SET_WRITE"):
                run(Section.NEXT_WRITE, "SET_SLIP")
            with m.State("SET_DELAY"):
                with m.If(delay != window.middle), run(Section.NEXT_DELAY, "SET_DELAY"):
                    m.d.sync += delay.eq(delay + 1)
                with m.Else():
                    m.d.sync += lane.eq(lane + 1)
                    m.next = "RESTART"
                    with m.If(last_lane):
                        m.d.sync += lane.eq(0)
                        m.next = "CHECK"
            with m.State("CHECK"), run(Section.PROBE, "CHECK"):
                m.d.sync += lane.eq(lane + 1)
                with m.If(self.mismatch):
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
