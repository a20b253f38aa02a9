"""Bus words of rows to and from words as wide as the arithmetic, if that is narrower."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import LARGEST_ROW, ROW_ALIGNMENT, Config, log2
from .payloads import row_format, row_word


class RowWordSplitter(wiring.Component):
    """Split the bus words of rows into words of `config.arithmetic_lanes` lanes.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    row_format : In(row_format)
        Of all rows. Set two cycles before the first word and stable while words are inside.
    words : In(stream(config.bus_width))
        Each row begins at the first byte of a word.
    parts : Out(stream(config.units.bus_width))
        Each row begins at the first byte of a part; none lies past its end.

    Timing
    ------
    Latency 0, one part per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "row_format": In(row_format),
            "words": In(stream.Signature(config.bus_width)),
            "parts": Out(stream.Signature(config.units.bus_width)),
        })

    def elaborate(self, platform):
        m = Module()
        units, words, parts = self.config.units, self.words, self.parts
        part_idx, last_part = (Signal(range(LARGEST_ROW // units.bus_bytes), name=name)
                               for name in ("part_idx", "last_part"))
        select = part_idx[:log2(self.config.word_lanes // units.lanes)]
        row_end = part_idx == last_part
        m.d.comb += [
            parts.valid.eq(words.valid),
            parts.p.eq(words.p.word_select(select, units.bus_width)),
            words.ready.eq(parts.ready & (select.all() | row_end)),
        ]
        m.d.sync += last_part.eq(
            ((self.row_format.row16 << log2(ROW_ALIGNMENT)) - 1) >> log2(units.bus_bytes))
        with m.If(parts.valid & parts.ready):
            m.d.sync += part_idx.eq(Mux(row_end, 0, part_idx + 1))
        return m


class RowWordJoiner(wiring.Component):
    """The inverse of `RowWordSplitter`.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    parts : In(stream(row_word(config.units)))
    words : Out(stream(row_word(config)))
        Bytes past the end of a row are undefined.

    Timing
    ------
    Latency 0 from the part that completes a word, one part per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "parts": In(stream.Signature(row_word(config.units))),
            "words": Out(stream.Signature(row_word(config))),
        })

    def elaborate(self, platform):
        m = Module()
        units, words, parts = self.config.units, self.words, self.parts
        count = self.config.word_lanes // units.lanes
        part_idx = Signal(range(count))
        stored = [Signal(units.bus_width, name=f"stored{idx}", reset_less=True)
                  for idx in range(count - 1)]
        complete = parts.p.last | (part_idx == count - 1)
        m.d.comb += [
            words.valid.eq(parts.valid & complete),
            words.p.last.eq(parts.p.last),
            words.p.data.eq(Cat(*(Mux(part_idx == idx, parts.p.data, value)
                                  for idx, value in enumerate(stored)), parts.p.data)),
            parts.ready.eq(~complete | words.ready),
        ]
        with m.If(parts.valid & parts.ready):
            m.d.sync += part_idx.eq(Mux(complete, 0, part_idx + 1))
            for idx, value in enumerate(stored):
                with m.If(part_idx == idx):
                    m.d.sync += value.eq(parts.p.data)
        return m
