"""A UDP port that carries frames, wired."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..link.layouts import frame_byte
from .answer_buffer import AnswerBuffer
from .datagram_store import STORED_WORDS, DatagramStore
from .layouts import peer, received_word, sent_word


class UdpPort(wiring.Component):
    """Frames in datagrams, one in each.

    Parameters
    ----------
    window : int
        Datagrams of the largest size for which there is room.

    Members
    -------
    received : In(stream(received_word)), sent : Out(stream(sent_word))
        Datagrams from and to the network.
    o : Out(stream(frame_byte)), peer : Out(peer)
        Frames, and where the one in `o` comes from.
    i : In(stream(frame_byte)), host : In(peer)
        Frames, and where the one in `i` goes to.
    overrun : Out(1)
        High for a cycle when a datagram has been dropped for which there was no room.

    Timing
    ------
    As of `DatagramStore` and `AnswerBuffer`.
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
        m.submodules.store = store = DatagramStore(depth)
        m.submodules.answers = answers = AnswerBuffer()
        connect(m, network=flipped(self.received), store=store.i)
        connect(m, link=flipped(self.i), answers=answers.i)
        connect(m, answers=answers.o, network=flipped(self.sent))
        m.d.comb += [
            self.o.valid.eq(store.o.valid),
            self.o.p.data.eq(store.o.p),
            self.o.p.last.eq(store.last),
            store.o.ready.eq(self.o.ready),
            self.peer.eq(store.peer),
            answers.peer.eq(self.host),
            self.overrun.eq(store.overrun),
        ]
        return m
