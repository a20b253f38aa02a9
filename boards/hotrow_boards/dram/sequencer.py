"""Plays sections of a DRAM's bring-up over the controller's registers."""

from amaranth import Array, Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .program import Program, Section, Step, step
from .signature import CONTROL_ADDRESS_WIDTH, Wishbone

_MOST_CYCLES = 1 << 16  # that a WAIT can take


class Sequencer(wiring.Component):
    """Run one section after the other, as asked.

    Parameters
    ----------
    program : Program

    Members
    -------
    sections : In(stream(Section))
        Taken at its end.
    lane : In(range(lanes))
        In hand.
    wrong : Out(1)
        Something that the section expects was not there; valid when it is taken.
    control : Out(Wishbone)

    Timing
    ------
    A step takes 3 cycles and those of the register, or those of a WAIT.
    """

    def __init__(self, program: Program):
        self.program = program
        super().__init__({
            "sections": In(stream.Signature(Section)),
            "lane": In(range(program.lanes)),
            "wrong": Out(1),
            "control": Out(Wishbone(CONTROL_ADDRESS_WIDTH)),
        })

    def elaborate(self, platform):
        m = Module()
        program, bus = self.program, self.control
        m.submodules.rom = rom = memory.Memory(
            shape=step, depth=len(program.words), init=map(step.from_bits, program.words))
        read = rom.read_port()
        at, left = Signal(range(len(program.words))), Signal(range(_MOST_CYCLES))
        now, expected, mask = read.data, Signal(32), Signal(32)
        writes, lane_bit = Signal(), Signal(32)
        m.d.comb += [
            read.addr.eq(at),
            lane_bit.eq(1 << self.lane),
            writes.eq((now.kind == Step.WRITE) | (now.kind == Step.SELECT_LANE)),
            bus.adr.eq(now.register), bus.we.eq(writes), bus.stb.eq(bus.cyc),
            bus.dat_w.eq(now.value), expected.eq(now.value),
            mask.eq(Array(program.masks)[self.lane]),
        ]
        with m.If(now.kind == Step.SELECT_LANE):
            m.d.comb += bus.dat_w.eq(lane_bit)
        with m.If(now.kind == Step.EXPECT_LANE):
            m.d.comb += [expected.eq(lane_bit), mask.eq(lane_bit)]

        def advance():
            m.d.sync += at.eq(at + 1)
            m.next = "FETCH"

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += self.wrong.eq(0)
                with m.If(self.sections.valid):
                    m.d.sync += at.eq(Array(program.entries)[self.sections.p])
                    m.next = "FETCH"
            with m.State("FETCH"):
                m.next = "STEP"
            with m.State("STEP"):
                m.d.sync += left.eq(now.value)
                with m.Switch(now.kind):
                    with m.Case(Step.END):
                        m.d.comb += self.sections.ready.eq(1)
                        m.next = "IDLE"
                    with m.Case(Step.WAIT):
                        m.next = "WAIT"
                    with m.Default():
                        m.next = "ACCESS"
            with m.State("WAIT"):
                m.d.sync += left.eq(left - 1)
                with m.If(left == 0):
                    advance()
            with m.State("ACCESS"):
                m.d.comb += bus.cyc.eq(1)
                with m.If(bus.ack):
                    with m.If(~writes & ((bus.dat_r ^ expected) & mask).any()):
                        m.d.sync += self.wrong.eq(1)
                    advance()
        return m
