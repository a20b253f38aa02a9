"""Frames over a serial line."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.primitives.skid_buffer import SkidBuffer

from ..link.frame_port import FramePort
from ..link.layouts import frame_byte
from ..link.slip import SlipDecoder, SlipEncoder
from .autobaud import Autobaud
from .receiver import Receiver
from .transmitter import Transmitter


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
