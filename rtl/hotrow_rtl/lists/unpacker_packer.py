"""Between lists of elements and the bus words that hold them in memory, little-endian."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.hdl import Shape
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..interfaces.records import ReadClient, WriteClient, element, result
from ..primitives.skid_buffer import SkidBuffer


def check_element(config: Config, shape, element_bytes):
    """Refuse elements that do not tile a bus word, or values wider than their element.

    Raises
    ------
    ValueError
    """
    tiles = element_bytes >= 1 and not element_bytes & (element_bytes - 1)
    if not tiles or element_bytes > config.bus_bytes:
        raise ValueError(f"element_bytes must be a power of two up to {config.bus_bytes}, "
                         f"the bytes of a bus word, not {element_bytes}")
    width = Shape.cast(shape).width
    if not 1 <= width <= 8 * element_bytes:
        raise ValueError(f"a value of {width} bits does not fit an element of {element_bytes} "
                         f"bytes: expected 1 to {8 * element_bytes} bits")


class Unpacker(wiring.Component):
    """Cut the words of one fetched list into its elements.

    Parameters
    ----------
    config : Config
    shape : ShapeCastable
        Of an element's value: its low bits in memory; bytes above it are dropped.
    element_bytes : int
        From one element to the next, a power of two up to `config.bus_bytes`.

    Members
    -------
    start : In(stream)
        The `count` of elements (at least 1) in the next list. Taken when the previous list is
        over, its surplus words included.
    words : In(stream)
        As from `ReadClient`: at least as many words as the elements fill. The list's first element
        is at the first byte of its first word. What follows the last element is dropped, up to
        and including the word with `last`. Their `ready` does not depend on that of `elements`.
    elements : Out(stream(element(shape)))
        `count` elements, each with the `fault` of its word, `last` on the final one.

    Timing
    ------
    Latency 1 cycle from word to element; one element a cycle within a list, one idle cycle
    between lists.
    """

    latency = 1

    def __init__(self, config: Config, shape, element_bytes):
        check_element(config, shape, element_bytes)
        self.shape, self.elements_per_word = shape, config.bus_bytes // element_bytes
        super().__init__({
            "start": In(stream.Signature(data.StructLayout({"count": 32}))),
            "words": In(ReadClient(config).members["words"].signature.flip()),
            "elements": Out(stream.Signature(element(shape))),
        })

    def elaborate(self, platform):
        m = Module()
        remaining = Signal(32)
        lane = Signal(range(max(2, self.elements_per_word)))  # never zero wide
        surplus = Signal()
        word, item = self.words.p, Signal(element(self.shape))
        final = remaining == 1
        lane_width = len(word.data) // self.elements_per_word
        m.submodules.out = out = SkidBuffer(item.shape().size)
        m.d.comb += [
            Value.cast(item.value).eq(word.data.word_select(lane, lane_width)),
            item.fault.eq(word.fault),
            item.last.eq(final),
            out.i.p.eq(item.as_value()),
            self.elements.valid.eq(out.o.valid),
            self.elements.p.as_value().eq(out.o.p),
            out.o.ready.eq(self.elements.ready),
        ]

        with m.If(surplus):
            m.d.comb += self.words.ready.eq(1)
            with m.If(self.words.valid & word.last):
                m.d.sync += surplus.eq(0)
        with m.Elif(remaining == 0):
            m.d.comb += self.start.ready.eq(1)
            with m.If(self.start.valid):
                m.d.sync += [remaining.eq(self.start.p.count), lane.eq(0)]
        with m.Elif(self.words.valid & out.i.ready):
            m.d.comb += [
                self.words.ready.eq(final | (lane == self.elements_per_word - 1)),
                out.i.valid.eq(1),
            ]
            m.d.sync += [
                remaining.eq(remaining - 1),
                lane.eq(Mux(self.words.ready, 0, lane + 1)),
                surplus.eq(final & ~word.last),
            ]
        return m


class Packer(wiring.Component):
    """Pack the elements of a list into consecutive words for a result port.

    Parameters
    ----------
    config : Config
    shape : ShapeCastable
        Of an element's value; bytes of the element above it are written as zero.
    element_bytes : int
        From one element to the next, a power of two up to `config.bus_bytes`.

    Members
    -------
    elements : In(stream(result(shape)))
        An element that is not `present` takes no place; with `last` it only ends the list.
    words : Out(stream)
        As for `WriteClient`: strobes only for the bytes of elements present, `last` on the word that
        ends the list. That word has no strobes when every element present has already left, or
        none came at all.

    Timing
    ------
    Latency 1 cycle from the element that completes a word; one element a cycle.
    """

    latency = 1

    def __init__(self, config: Config, shape, element_bytes):
        check_element(config, shape, element_bytes)
        self.element_bytes = element_bytes
        self.elements_per_word = config.bus_bytes // element_bytes
        super().__init__({
            "elements": In(stream.Signature(result(shape))),
            "words": Out(WriteClient(config).members["words"].signature),
        })

    def elaborate(self, platform):
        m = Module()
        item, out = self.elements.p, self.words
        lane = Signal(range(max(2, self.elements_per_word)))
        lane_bits = Signal(8 * self.element_bytes)
        held, merged = Signal.like(out.p.data), Signal.like(out.p.data)
        filled = Signal(self.elements_per_word)  # lanes of `held` that carry an element
        placed = Signal.like(filled)
        m.d.comb += [
            lane_bits.eq(Value.cast(item.value).as_unsigned()),
            merged.eq(held),
            placed.eq(filled),
            self.elements.ready.eq(~out.valid | out.ready),
        ]
        with m.If(item.present):
            m.d.comb += [
                merged.word_select(lane, len(lane_bits)).eq(lane_bits),
                placed.bit_select(lane, 1).eq(1),
            ]

        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(self.elements.valid & self.elements.ready):
            with m.If(item.last | placed[-1]):
                m.d.sync += [
                    out.valid.eq(1),
                    out.p.data.eq(merged),
                    out.p.strobe.eq(Cat(has.replicate(self.element_bytes) for has in placed)),
                    out.p.last.eq(item.last),
                    held.eq(0),
                    filled.eq(0),
                    lane.eq(0),
                ]
            if self.elements_per_word > 1:  # or every element leaves as it comes
                with m.Else():
                    m.d.sync += [held.eq(merged), filled.eq(placed), lane.eq(lane + item.present)]
        return m
