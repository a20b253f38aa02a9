"""Frames over a UDP port."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..link.frame_port import FramePort
from .datagram_fifo import STORED_WORDS, DatagramFifo
from .datagram_packer import DatagramPacker
from .layouts import PEER_BYTES, received_word, sent_word


class UdpPort(wiring.Component):
    """Carry frames in datagrams, one in each.

    Parameters
    ----------
    window : int
        Number of datagrams of the largest size that can be stored.

    Attributes
    ----------
    received : In(stream(received_word)), sent : Out(stream(sent_word))
        Datagrams from and to the network.
    frames : Out(FramePort(PEER_BYTES))
        `overrun` is high for a cycle when a datagram was dropped for lack of space.

    Timing
    ------
    See `DatagramFifo` and `DatagramPacker`.
    """

    def __init__(self, window):
        self.window = window
        super().__init__({
            "received": In(stream.Signature(received_word)),
            "sent": Out(stream.Signature(sent_word)),
            "frames": Out(FramePort(PEER_BYTES)),
        })

    def elaborate(self, platform):
        m, frames = Module(), self.frames
        depth = 1 << (self.window * STORED_WORDS).bit_length()
        m.submodules.fifo = fifo = DatagramFifo(depth)
        m.submodules.packer = packer = DatagramPacker()
        connect(m, network=flipped(self.received), fifo=fifo.i)
        connect(m, link=flipped(frames.replies), packer=packer.i)
        connect(m, packer=packer.o, network=flipped(self.sent))
        m.d.comb += [
            frames.requests.valid.eq(fifo.o.valid),
            frames.requests.p.data.eq(fifo.o.p),
            frames.requests.p.last.eq(fifo.last),
            fifo.o.ready.eq(frames.requests.ready),
            frames.peer.eq(fifo.peer),
            packer.peer.eq(frames.host),
            frames.overrun.eq(fifo.overrun),
        ]
        return m
