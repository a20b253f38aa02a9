"""Frames over a serial line."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.primitives.skid_buffer import SkidBuffer

from ..link.frame_port import FramePort
from ..link.layouts import frame_byte
from ..link.slip import SlipDecoder, SlipEncoder

_BITS = 10  # with start and stop bit
_STEPS = 3  # of a measurement
_MAX_ERRORS = 4  # consecutive errors after which the rate is measured again
PERIOD_BITS = 18  # 9600 baud at 200 MHz
EIGHTHS = 8
MIN_PERIOD = 4 * EIGHTHS  # four cycles a bit: enough to sample its middle
SYNC_INTERVALS = 4  # from falling edge to falling edge of one sync byte, two bits each


class Autobaud(wiring.Component):
    """Measure the period of a line on sync bytes: 0x55, a falling edge every two bits.

    Payload bytes can show the same edges, so the unit keeps a measured rate until several errors
    occur without a good frame between them.

    Source: the sync byte of LIN (ISO 17987-3), from which its responders derive their rate.

    Parameters
    ----------
    period : int
        Period before the first measurement.

    Attributes
    ----------
    line : In(1)
        Received level, synchronised.
    good, bad : In(1)
        High for a cycle after a valid frame; after an invalid frame or byte.
    period : Out(PERIOD_BITS)
        Cycles of eight bits.

    Timing
    ------
    `period` changes 4 cycles after the last of four equal intervals.
    """

    def __init__(self, period=MIN_PERIOD):
        super().__init__({
            "line": In(1), "good": In(1), "bad": In(1),
            "period": Out(PERIOD_BITS, init=period),
        })

    def elaborate(self, platform):
        m = Module()
        line_q, falling_edge = Signal(init=1), Signal()
        interval = Signal(PERIOD_BITS - 1)  # cycles since the last falling edge, saturating
        intervals = Signal(data.ArrayLayout(len(interval), SYNC_INTERVALS))
        total = Signal(PERIOD_BITS + 1)
        uniform, in_range = Signal(), Signal()
        step = Signal(_STEPS)  # one-hot after a falling edge: store, add, compare
        errors = Signal(range(_MAX_ERRORS + 1), init=_MAX_ERRORS)
        m.d.comb += falling_edge.eq(line_q & ~self.line)
        m.d.sync += [
            line_q.eq(self.line),
            step.eq(Cat(falling_edge, step[:-1])),
            total.eq(sum(intervals[idx] for idx in range(SYNC_INTERVALS))),
            # Each interval is within an eighth of the mean.
            uniform.eq(Cat(
                ((intervals[idx] << 5) <= 9 * total) & ((intervals[idx] << 5) >= 7 * total)
                for idx in range(SYNC_INTERVALS)).all()),
            in_range.eq((total >= MIN_PERIOD) & ~total[PERIOD_BITS:].any()),
        ]
        with m.If(falling_edge):
            m.d.sync += [
                Cat(intervals).eq(Cat(Cat(intervals)[len(interval):], interval)),
                interval.eq(1),
            ]
        with m.Elif(~interval.all()):
            m.d.sync += interval.eq(interval + 1)
        with m.If(self.good):
            m.d.sync += errors.eq(0)
        with m.Elif(self.bad & (errors != _MAX_ERRORS)):
            m.d.sync += errors.eq(errors + 1)
        with m.If(step[-1] & uniform & in_range & (errors == _MAX_ERRORS)):
            m.d.sync += [self.period.eq(total), errors.eq(0)]
        return m


class Receiver(wiring.Component):
    """Receive bytes: a start bit, eight bits with the lowest first, a stop bit.

    Attributes
    ----------
    line : In(1)
        Received level, synchronised.
    period : In(PERIOD_BITS)
        Cycles of eight bits, at least MIN_PERIOD.
    o : Out(stream(8))
        A byte that is not accepted before the next one arrives is lost.
    framing_error : Out(1)
        High for a cycle when a stop bit is missing; the byte is dropped.

    Timing
    ------
    `o` is valid 1 cycle after the middle of the stop bit.
    """

    line: In(1)
    period: In(PERIOD_BITS)
    o: Out(stream.Signature(8))
    framing_error: Out(1)

    def elaborate(self, platform):
        m = Module()
        eighths_left = Signal(PERIOD_BITS + 1)  # until the middle of the next bit
        octet, bit_idx = Signal(8), Signal(range(8))
        sample, next_left = Signal(), Signal.like(eighths_left)
        m.d.comb += [
            sample.eq(eighths_left <= EIGHTHS),
            next_left.eq(Mux(sample, eighths_left + self.period - EIGHTHS,
                             eighths_left - EIGHTHS)),
        ]
        m.d.sync += eighths_left.eq(next_left)
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [eighths_left.eq(self.period >> 1), bit_idx.eq(0)]
                with m.If(~self.line):
                    m.next = "START"
            with m.State("START"), m.If(sample):
                m.next = "IDLE"
                with m.If(~self.line):
                    m.next = "BITS"
            with m.State("BITS"), m.If(sample):
                m.d.sync += [octet.eq(Cat(octet[1:], self.line)), bit_idx.eq(bit_idx + 1)]
                with m.If(bit_idx == 7):
                    m.next = "STOP"
            with m.State("STOP"), m.If(sample):
                m.next = "IDLE"
                with m.If(self.line):
                    m.d.sync += [self.o.valid.eq(1), self.o.p.eq(octet)]
                with m.Else():
                    m.d.comb += self.framing_error.eq(1)
                    m.next = "BREAK"
            with m.State("BREAK"), m.If(self.line):
                m.next = "IDLE"
        return m


class Transmitter(wiring.Component):
    """Send bytes with a start and a stop bit, the lowest bit first.

    Attributes
    ----------
    i : In(stream(8))
    period : In(PERIOD_BITS)
        Cycles of eight bits.
    line : Out(1)

    Timing
    ------
    A byte takes 10 / 8 of a period, plus a cycle.
    """

    i: In(stream.Signature(8))
    period: In(PERIOD_BITS)
    line: Out(1, init=1)

    def elaborate(self, platform):
        m = Module()
        bits, bits_left = Signal(_BITS), Signal(range(_BITS + 1))
        eighths_left = Signal(PERIOD_BITS + 1)  # of the bit on the line
        bit_done = Signal()
        m.d.comb += [
            bit_done.eq(eighths_left <= EIGHTHS),
            self.i.ready.eq(bits_left == 0),
        ]
        with m.If(bits_left == 0):
            m.d.sync += self.line.eq(1)
            with m.If(self.i.valid):
                m.d.sync += [
                    bits.eq(Cat(Const(0, 1), self.i.p, Const(1, 1))),
                    bits_left.eq(_BITS),
                    eighths_left.eq(self.period),
                ]
        with m.Else():
            m.d.sync += [
                self.line.eq(bits[0]),
                eighths_left.eq(Mux(bit_done, eighths_left + self.period - EIGHTHS,
                                    eighths_left - EIGHTHS)),
            ]
            with m.If(bit_done):
                m.d.sync += [bits.eq(bits >> 1), bits_left.eq(bits_left - 1)]
        return m


class UartPort(wiring.Component):
    """Carry frames over two pins at the bit rate of the host.

    Attributes
    ----------
    rx : In(1), tx : Out(1)
        Pins; high when idle.
    frames : Out(FramePort())
        Each byte of a request must be accepted within the 10 bits of the next one.

    Timing
    ------
    The synchroniser adds 2 cycles to received bytes, the skid buffer 1 to sent bytes.
    """

    rx: In(1, init=1)
    tx: Out(1, init=1)
    frames: Out(FramePort())

    def elaborate(self, platform):
        m = Module()
        m.submodules.receiver = receiver = Receiver()
        m.submodules.transmitter = transmitter = Transmitter()
        m.submodules.autobaud = autobaud = Autobaud()
        m.submodules.decoder = decoder = SlipDecoder()
        m.submodules.encoder = encoder = SlipEncoder()
        m.submodules.synchronise = FFSynchronizer(self.rx, receiver.line, init=1)
        connect(m, receiver=receiver.o, decoder=decoder.i)
        connect(m, decoder.o, flipped(self.frames.requests))
        # Timing: registers the path from the reply memory into the encoder.
        m.submodules.skid = skid = SkidBuffer(frame_byte)
        connect(m, flipped(self.frames.replies), skid.i)
        connect(m, skid=skid.o, encoder=encoder.i)
        connect(m, encoder=encoder.o, transmitter=transmitter.i)
        m.d.comb += [
            self.tx.eq(transmitter.line),
            autobaud.line.eq(receiver.line),
            autobaud.good.eq(self.frames.good),
            autobaud.bad.eq(self.frames.bad | receiver.framing_error),
            receiver.period.eq(autobaud.period),
            transmitter.period.eq(autobaud.period),
        ]
        return m
