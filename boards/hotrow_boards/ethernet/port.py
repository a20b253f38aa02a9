"""Frames over a UDP port."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..link.layouts import frame_byte
from .datagram_fifo import STORED_WORDS, DatagramFifo
from .datagram_packer import DatagramPacker
from .layouts import peer, received_word, sent_word


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
    o : Out(stream(frame_byte)), peer : Out(peer)
        Received frames, and the sender of the frame in `o`.
    i : In(stream(frame_byte)), host : In(peer)
        Frames to send, and the destination of the frame in `i`.
    overrun : Out(1)
        High for a cycle when a datagram was dropped for lack of space.

    Timing
    ------
    See `DatagramFifo` and `DatagramPacker`.
    """

    def __init__(self, window):
        self.window = window
        super().__init__({
            "received": In(stream.Signature(received_word)),
            "sent": Out(stream.Signature(sent_word)),
            "o": Out(stream.Signature(frame_byte)),
            "peer": Out(peer),
            "i": In(stream.Signature(frame_byte)),
            "host": In(peer),
            "overrun": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        depth = 1 << (self.window * STORED_WORDS).bit_length()
        m.submodules.fifo = fifo = DatagramFifo(depth)
        m.submodules.packer = packer = DatagramPacker()
        connect(m, network=flipped(self.received), fifo=fifo.i)
        connect(m, link=flipped(self.i), packer=packer.i)
        connect(m, packer=packer.o, network=flipped(self.sent))
        m.d.comb += [
            self.o.valid.eq(fifo.o.valid),
            self.o.p.data.eq(fifo.o.p),
            self.o.p.last.eq(fifo.last),
            fifo.o.ready.eq(self.o.ready),
            self.peer.eq(fifo.peer),
            packer.peer.eq(self.host),
            self.overrun.eq(fifo.overrun),
        ]
        return m
