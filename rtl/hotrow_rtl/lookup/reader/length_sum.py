"""Length sum: the sum of the lengths of a jagged batch."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from .batch_descriptor import LENGTH_WIDTH, bags_width, fetched_words

LENGTH_BYTES = LENGTH_WIDTH // 8


def sum_width(config: Config) -> int:
    """Bits of the sum of the lengths of the largest batch."""
    return bags_width(config) + LENGTH_WIDTH


class LengthSum(wiring.Component):
    """Sum a list of 16-bit lengths by a pipelined tree of adders.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    start : In(stream)
        The `count` of lengths in the next list, at least 1. Accepted when the previous list ended.
    words : In(stream)
        From `ReadClient`, exactly the words of the list.
    total : Out(stream)
        The `sum` of each list, and its first `fault`.

    Timing
    ------
    One word a cycle; the total 3 + log2(lengths per word) cycles after the last word.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(stream.Signature(data.StructLayout({"count": bags_width(config)}))),
            "words": In(fetched_words(config)),
            "total": Out(stream.Signature(data.StructLayout({
                "sum": sum_width(config), "fault": 2}))),
        })

    def elaborate(self, platform):
        m = Module()
        width = LENGTH_WIDTH
        per_word = self.config.bus_bytes // LENGTH_BYTES
        levels = log2(per_word) + 1
        remaining = Signal(bags_width(self.config))
        draining = Signal(levels)  # bit n: level n of the tree holds a word's lengths
        busy = Signal()
        has_words, final = Signal(), Signal()  # words remain; one remains
        fire = self.words.valid & has_words
        total = self.total

        m.d.comb += [
            self.start.ready.eq(~busy & ~total.valid),
            self.words.ready.eq(has_words),
        ]
        with m.If(self.start.valid & self.start.ready):
            m.d.sync += [
                busy.eq(1), remaining.eq(self.start.p.count), total.p.eq(0), has_words.eq(1),
                final.eq(self.start.p.count <= per_word)]
        with m.If(fire):
            m.d.sync += [remaining.eq(remaining - per_word), has_words.eq(~final),
                         final.eq(remaining <= 2 * per_word)]
            with m.If(total.p.fault == 0):
                m.d.sync += total.p.fault.eq(self.words.p.fault)

        in_word = remaining[:log2(per_word) + 1]
        terms = [Mux(~final | (number < in_word), self.words.p.data.word_select(number, width), 0)
                 for number in range(per_word)]
        for level in range(levels):
            sums = [Signal(width + level, name=f"sum{level}_{i}", reset_less=True)
                    for i in range(len(terms))]
            m.d.sync += [register.eq(term) for register, term in zip(sums, terms, strict=True)]
            terms = [low + high for low, high in zip(sums[::2], sums[1::2], strict=False)]
        m.d.sync += draining.eq(draining << 1 | fire)
        with m.If(draining[-1]):
            m.d.sync += total.p.sum.eq(total.p.sum + sums[0])
        with m.If(busy & ~has_words & ~draining.any()):
            m.d.sync += [busy.eq(0), total.valid.eq(1)]
        with m.If(total.valid & total.ready):
            m.d.sync += total.valid.eq(0)
        return m
