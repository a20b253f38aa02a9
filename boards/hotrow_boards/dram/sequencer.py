"""Execute sections of a DRAM's bring-up over the controller's registers."""

from amaranth import Array, Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .program import Program, Section, Step, step
from .signature import CONTROL_ADDRESS_WIDTH, Wishbone

_MAX_CYCLES = 1 << 16  # of a WAIT


class Sequencer(wiring.Component):
    """Execute the requested sections one after the other.

    Parameters
    ----------
    program : Program

    Attributes
    ----------
    sections : In(stream(Section))
        Accepted when the section ends.
    lane : In(range(lanes))
        Lane that the section acts on.
    mismatch : Out(1)
        An EXPECT of the section failed; valid when the section is accepted.
    control : Out(Wishbone)

    Timing
    ------
    A step takes 3 cycles plus the register access or the wait.
    """

    def __init__(self, program: Program):
        self.program = program
        super().__init__({
            "sections": In(stream.Signature(Section)),
            "lane": In(range(program.lanes)),
            "mismatch": Out(1),
            "control": Out(Wishbone(CONTROL_ADDRESS_WIDTH)),
        })

    def elaborate(self, platform):
        m = Module()
        program, bus = self.program, self.control
        m.submodules.rom = rom = memory.Memory(
            shape=step, depth=len(program.words), init=map(step.from_bits, program.words))
        read = rom.read_port()
        address, wait_left = Signal(range(len(program.words))), Signal(range(_MAX_CYCLES))
        current, expected, mask = read.data, Signal(32), Signal(32)
        writes, lane_bit = Signal(), Signal(32)
        m.d.comb += [
            read.addr.eq(address),
            lane_bit.eq(1 << self.lane),
            writes.eq((current.kind == Step.WRITE) | (current.kind == Step.SELECT_LANE)),
            bus.adr.eq(current.register), bus.we.eq(writes), bus.stb.eq(bus.cyc),
            bus.dat_w.eq(current.value), expected.eq(current.value),
            mask.eq(Array(program.masks)[self.lane]),
        ]
        with m.If(current.kind == Step.SELECT_LANE):
            m.d.comb += bus.dat_w.eq(lane_bit)
        with m.If(current.kind == Step.EXPECT_LANE):
            m.d.comb += [expected.eq(lane_bit), mask.eq(lane_bit)]

        def next_step():
            m.d.sync += address.eq(address + 1)
            m.next = "FETCH"

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += self.mismatch.eq(0)
                with m.If(self.sections.valid):
                    m.d.sync += address.eq(Array(program.entries)[self.sections.p])
                    m.next = "FETCH"
            with m.State("FETCH"):
                m.next = "STEP"
            with m.State("STEP"):
                m.d.sync += wait_left.eq(current.value)
                with m.Switch(current.kind):
                    with m.Case(Step.END):
                        m.d.comb += self.sections.ready.eq(1)
                        m.next = "IDLE"
                    with m.Case(Step.WAIT):
                        m.next = "WAIT"
                    with m.Default():
                        m.next = "ACCESS"
            with m.State("WAIT"):
                m.d.sync += wait_left.eq(wait_left - 1)
                with m.If(wait_left == 0):
                    next_step()
            with m.State("ACCESS"):
                m.d.comb += bus.cyc.eq(1)
                with m.If(bus.ack):
                    with m.If(~writes & ((bus.dat_r ^ expected) & mask).any()):
                        m.d.sync += self.mismatch.eq(1)
                    next_step()
        return m
