"""A serial line that carries frames, wired."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.primitives.skid_buffer import SkidBuffer

from ..link.layouts import frame_byte
from ..link.slip import SlipDecoder, SlipEncoder
from .rate_finder import RateFinder
from .receiver import Receiver
from .transmitter import Transmitter


class UartPort(wiring.Component):
    """Frames over two pins, at the rate that the host chooses.

    Members
    -------
    rx : In(1), tx : Out(1)
        Pins; high when idle.
    o : Out(stream(frame_byte))
        Frames from the host, to be taken a byte in 10 bits.
    i : In(stream(frame_byte))
    good, bad : In(1)
        High for a cycle when a frame of `o` proved whole, or not.

    Timing
    ------
    Two cycles of synchronisation, and one of a byte that is sent, beside those of the units.
    """

    rx: In(1, init=1)
    tx: Out(1, init=1)
    o: Out(stream.Signature(frame_byte))
    i: In(stream.Signature(frame_byte))
    good: In(1)
    bad: In(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.receiver = receiver = Receiver()
        m.submodules.transmitter = transmitter = Transmitter()
        m.submodules.rate = rate = RateFinder()
        m.submodules.decoder = decoder = SlipDecoder()
        m.submodules.encoder = encoder = SlipEncoder()
        m.submodules.synchronise = FFSynchronizer(self.rx, receiver.line, init=1)
        connect(m, receiver=receiver.o, decoder=decoder.i)
        connect(m, decoder.o, flipped(self.o))
        # A byte from memory is kept before it is looked at.
        m.submodules.kept = kept = SkidBuffer(self.i.p.shape().size)
        m.d.comb += [
            kept.i.valid.eq(self.i.valid), kept.i.p.eq(self.i.p.as_value()),
            self.i.ready.eq(kept.i.ready),
            encoder.i.valid.eq(kept.o.valid), encoder.i.p.eq(kept.o.p),
            kept.o.ready.eq(encoder.i.ready),
        ]
        connect(m, encoder=encoder.o, transmitter=transmitter.i)
        m.d.comb += [
            self.tx.eq(transmitter.line),
            rate.line.eq(receiver.line),
            rate.good.eq(self.good),
            rate.bad.eq(self.bad | receiver.broken),
            receiver.period.eq(rate.period),
            transmitter.period.eq(rate.period),
        ]
        return m
