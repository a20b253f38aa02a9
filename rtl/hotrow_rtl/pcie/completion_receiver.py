"""CompletionReceiver: completions as a header and whole bus words."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .layouts import beat, completion_header, swapped

_DWORDS = 3  # of the header


def completion_beat(width) -> data.StructLayout:
    """A step of a completion: its header, then its words one by one.

    `header` is valid from `opens` to the next `opens`; `closes` comes with the packet's last beat,
    unless that has a part of a word.
    """
    return data.StructLayout({
        "opens": 1, "closes": 1, "header": completion_header, "has_word": 1, "word": width})


class CompletionReceiver(wiring.Component):
    """Separate the header of each completion, and align its payload with bus words.

    A read of whole bus words is split at multiples of 64 bytes only, so the payload of each of its
    completions consists of whole words. A word counts if its last double word is enabled; in the
    same beat a digest may follow.

    Parameters
    ----------
    width : int
        64 or 128.

    Attributes
    ----------
    packets : In(stream(beat(width)))
        Completions only; always ready.
    completions : Out(completion_beat(width))

    Timing
    ------
    Latency 1 cycle.
    """

    def __init__(self, width):
        self.width = width
        super().__init__({
            "packets": In(stream.Signature(beat(width), always_ready=True)),
            "completions": Out(completion_beat(width)),
        })

    def elaborate(self, platform):
        m = Module()
        packets, out, dwords = self.packets, self.completions, self.width // 32
        header_beats = -(-_DWORDS // dwords)
        number, previous = Signal(range(header_beats + 1)), Signal(self.width)
        ahead = _DWORDS % dwords  # double words of the header in its last beat
        m.d.sync += [out.opens.eq(0), out.closes.eq(0), out.has_word.eq(0)]
        with m.If(packets.valid):
            m.d.sync += [
                previous.eq(packets.p.data),
                out.closes.eq(packets.p.last & (number >= header_beats - 1)
                              & (packets.p.keep[ahead - 1] | ~packets.p.keep[0])),
                out.word.eq(swapped(Cat(previous, packets.p.data)[32 * ahead:][:self.width])),
            ]
            with m.If(packets.p.last):
                m.d.sync += number.eq(0)
            with m.Elif(number != header_beats):
                m.d.sync += number.eq(number + 1)
            with m.If(number == header_beats - 1):
                m.d.sync += [
                    out.opens.eq(1),
                    out.header.eq(Cat(previous, packets.p.data)[-header_beats * self.width:]),
                ]
            with m.Elif(number == header_beats):
                m.d.sync += out.has_word.eq(packets.p.keep[ahead - 1])
        return m
