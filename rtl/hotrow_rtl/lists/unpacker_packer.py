"""Lists of elements from and to bus words, little-endian, one element a cycle."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.hdl import Shape
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config
from ..interfaces.records import ReadClient, element, packed_word, result
from ..primitives.skid_buffer import SkidBuffer


def check_element(config: Config, shape, element_bytes):
    """Refuse element sizes that do not divide a bus word, and values wider than an element.

    Raises
    ------
    ValueError
    """
    power_of_two = element_bytes >= 1 and not element_bytes & (element_bytes - 1)
    if not power_of_two or element_bytes > config.bus_bytes:
        raise ValueError(f"element_bytes must be a power of two up to {config.bus_bytes}, "
                         f"the bytes of a bus word, not {element_bytes}")
    width = Shape.cast(shape).width
    if not 1 <= width <= 8 * element_bytes:
        raise ValueError(f"a value of {width} bits does not fit an element of {element_bytes} "
                         f"bytes: expected 1 to {8 * element_bytes} bits")


class Unpacker(wiring.Component):
    """Split the words of one fetched list into its elements.

    Parameters
    ----------
    config : Config
    shape : ShapeCastable
        Of an element's value: its low bits in memory; the bytes above are dropped.
    element_bytes : int
        From one element to the next, a power of two up to `config.bus_bytes`.

    Attributes
    ----------
    start : In(stream)
        The `count` of elements (at least 1) in the next list; accepted after the last word of the
        previous list.
    words : In(stream)
        See `ReadClient`: at least as many words as the elements fill. The list's first element is
        at the first byte of its first word. The unit drops the bytes after the last element, up
        to and including the word with `last`. `words.ready` does not depend on `elements.ready`.
    elements : Out(stream(element(shape)))
        `count` elements, each with the `fault` of its word; `last` on the final one.

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
        place = Signal(range(max(2, self.elements_per_word)))  # of the element in its word
        surplus = Signal()
        word, final = self.words.p, remaining == 1
        width = len(word.data) // self.elements_per_word
        m.submodules.out = out = SkidBuffer(element(self.shape))
        connect(m, out.o, flipped(self.elements))
        m.d.comb += [
            Value.cast(out.i.p.value).eq(word.data.word_select(place, width)),
            out.i.p.fault.eq(word.fault),
            out.i.p.last.eq(final),
        ]

        with m.If(surplus):
            m.d.comb += self.words.ready.eq(1)
            with m.If(self.words.valid & word.last):
                m.d.sync += surplus.eq(0)
        with m.Elif(remaining == 0):
            m.d.comb += self.start.ready.eq(1)
            with m.If(self.start.valid):
                m.d.sync += [remaining.eq(self.start.p.count), place.eq(0)]
        with m.Elif(self.words.valid & out.i.ready):
            m.d.comb += [
                self.words.ready.eq(final | (place == self.elements_per_word - 1)),
                out.i.valid.eq(1),
            ]
            m.d.sync += [
                remaining.eq(remaining - 1),
                place.eq(Mux(self.words.ready, 0, place + 1)),
                surplus.eq(final & ~word.last),
            ]
        return m


class Packer(wiring.Component):
    """Pack the elements of a list into consecutive words for a result port.

    Parameters
    ----------
    config : Config
    shape : ShapeCastable
        Of an element's value; the bytes above it are written as zero.
    element_bytes : int
        From one element to the next, a power of two up to `config.bus_bytes`.
    word_bytes : int, optional
        Of a word, a power of two of at least `element_bytes`; default `config.bus_bytes`, as a
        result port accepts them.

    Attributes
    ----------
    elements : In(stream(result(shape)))
        An element without `present` takes no place; with `last` it only ends the list.
    words : Out(stream(packed_word(word_bytes)))
        See `WriteClient`: strobes only for the bytes of elements present; `last` on the word that
        ends the list. That word has no strobes if all elements are in earlier words, or if the list
        is empty.

    Timing
    ------
    Latency 1 cycle from the element that completes a word; one element a cycle.
    """

    latency = 1

    def __init__(self, config: Config, shape, element_bytes, word_bytes=None):
        check_element(config, shape, element_bytes)
        word_bytes = word_bytes or config.bus_bytes
        self.element_bytes = element_bytes
        self.elements_per_word = word_bytes // element_bytes
        super().__init__({
            "elements": In(stream.Signature(result(shape))),
            "words": Out(stream.Signature(packed_word(word_bytes))),
        })

    def elaborate(self, platform):
        m = Module()
        item, out = self.elements.p, self.words
        place = Signal(range(max(2, self.elements_per_word)))  # of the element in its word
        padded = Signal(8 * self.element_bytes)
        partial, merged = Signal.like(out.p.data), Signal.like(out.p.data)
        filled = Signal(self.elements_per_word)  # places of `partial` with an element
        merged_filled = Signal.like(filled)
        m.d.comb += [
            padded.eq(Value.cast(item.value).as_unsigned()),
            merged.eq(partial),
            merged_filled.eq(filled),
            self.elements.ready.eq(~out.valid | out.ready),
        ]
        with m.If(item.present):
            m.d.comb += [
                merged.word_select(place, len(padded)).eq(padded),
                merged_filled.bit_select(place, 1).eq(1),
            ]

        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(self.elements.valid & self.elements.ready):
            with m.If(item.last | merged_filled[-1]):
                m.d.sync += [
                    out.valid.eq(1),
                    out.p.data.eq(merged),
                    out.p.strobe.eq(Cat(bit.replicate(self.element_bytes)
                                        for bit in merged_filled)),
                    out.p.last.eq(item.last),
                    partial.eq(0),
                    filled.eq(0),
                    place.eq(0),
                ]
            if self.elements_per_word > 1:
                with m.Else():
                    m.d.sync += [partial.eq(merged), filled.eq(merged_filled),
                                 place.eq(place + item.present)]
        return m
