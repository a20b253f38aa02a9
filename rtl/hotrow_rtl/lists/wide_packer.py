"""Splits list elements that are longer than a bus word into bus words."""

from amaranth import Module, Mux, Signal, Value
from amaranth.hdl import Shape
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..interfaces.records import WriteClient, result
from .unpacker_packer import Packer


class WidePacker(wiring.Component):
    """Split the elements of a list into words for a result port.

    Parameters
    ----------
    config : Config
    shape : ShapeCastable
        Of an element's value; the bytes above it are written as zero.
    element_bytes : int
        From one element to the next, `config.bus_bytes` times a power of two of at least 2.

    Attributes
    ----------
    elements : In(stream(result(shape)))
    words : Out(stream)
        See `Packer`.

    Timing
    ------
    Latency 1 cycle from the element to its first word, then one word a cycle.
    """

    latency = 1

    def __init__(self, config: Config, shape, element_bytes):
        self.words_per_element, remainder = divmod(element_bytes, config.bus_bytes)
        if remainder or self.words_per_element < 2 or self.words_per_element & (
                self.words_per_element - 1):
            raise ValueError(f"element_bytes must be {config.bus_bytes}, the bytes of a bus word, "
                             f"times a power of two of at least 2, not {element_bytes}: for "
                             "shorter ones use Packer")
        width = Shape.cast(shape).width
        if not 1 <= width <= 8 * element_bytes:
            raise ValueError(f"a value of {width} bits does not fit an element of {element_bytes} "
                             f"bytes: expected 1 to {8 * element_bytes} bits")
        self.element_bytes = element_bytes
        super().__init__({
            "elements": In(stream.Signature(result(shape))),
            "words": Out(WriteClient(config).members["words"].signature),
        })

    def elaborate(self, platform):
        m = Module()
        item, out = self.elements.p, self.words
        padded = Signal(8 * self.element_bytes)
        word_idx = Signal(range(self.words_per_element))
        load, final = Signal(), Signal()
        m.d.comb += [
            padded.eq(Value.cast(item.value).as_unsigned()),
            load.eq(~out.valid | out.ready),
            final.eq(~item.present | (word_idx == self.words_per_element - 1)),
            self.elements.ready.eq(load & final),
        ]
        with m.If(load):
            m.d.sync += out.valid.eq(self.elements.valid & (item.present | item.last))
        with m.If(load & self.elements.valid):
            m.d.sync += [
                out.p.data.eq(padded.word_select(word_idx, len(out.p.data))),
                out.p.strobe.eq(item.present.replicate(len(out.p.strobe))),
                out.p.last.eq(item.last & final),
                word_idx.eq(Mux(final, 0, word_idx + 1)),
            ]
        return m


def list_packer(config: Config, shape, element_bytes):
    """Return the unit that writes elements of `element_bytes`: `Packer` or `WidePacker`."""
    unit = Packer if element_bytes <= config.bus_bytes else WidePacker
    return unit(config, shape, element_bytes)
