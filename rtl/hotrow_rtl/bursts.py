"""AXI4 bursts of lists and results.

A burst ends where the memory beyond is a multiple of `burst_beats` bus words. Such a boundary is
found by looking at a few address bits, and no burst ever crosses 4 KiB, because a full burst's
size divides that.
"""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .axi import DECERR, SLVERR
from .config import Config, log2
from .contract import OFFSET_WIDTH
from .layouts import FAULT_DECERR, FAULT_SLVERR


def word_width(config: Config) -> int:
    """Bits of the number of a bus word in memory, its byte address divided by `bus_bytes`."""
    return config.address_width - log2(config.bus_bytes)


def words_width(config: Config) -> int:
    """Bits of a count of bus words: as many as the largest region has."""
    return OFFSET_WIDTH - log2(config.bus_bytes) + 1


def burst(config: Config) -> data.StructLayout:
    """`beats` (1 to `burst_beats`) bus words from number `word`."""
    return data.StructLayout({"word": word_width(config), "beats": log2(config.burst_beats) + 1})


def fault_of(response):
    """The `fault` that an AXI response stands for; 0 for OKAY."""
    return Mux(response == SLVERR, FAULT_SLVERR, Mux(response == DECERR, FAULT_DECERR, 0))


class BurstCutter(wiring.Component):
    """Cut a run of bus words into bursts.

    Members
    -------
    runs : In(stream)
        `words` (at least 1) from number `word`.
    bursts : Out(stream(burst(config)))
        The bursts of each run, in order.
    clear : In(1)
        Forget the current run.

    Timing
    ------
    Latency 2 cycles; one burst a cycle, one idle cycle between runs.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "runs": In(stream.Signature(data.StructLayout({
                "word": word_width(config), "words": words_width(config)}))),
            "bursts": Out(stream.Signature(burst(config))),
            "clear": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        longest = self.config.burst_beats
        word, left = Signal(word_width(self.config)), Signal(words_width(self.config))
        out = self.bursts
        to_boundary, beats = Signal.like(out.p.beats), Signal.like(out.p.beats)
        m.d.comb += [
            to_boundary.eq(longest - word[:log2(longest)]),
            beats.eq(Mux(left < to_boundary, left, to_boundary)),
            self.runs.ready.eq(left == 0),
        ]
        with m.If(self.runs.ready):
            with m.If(self.runs.valid):
                m.d.sync += [word.eq(self.runs.p.word), left.eq(self.runs.p.words)]
            with m.If(out.ready):
                m.d.sync += out.valid.eq(0)
        with m.Elif(~out.valid | out.ready):
            m.d.sync += [
                out.valid.eq(1),
                out.p.word.eq(word),
                out.p.beats.eq(beats),
                word.eq(word + beats),
                left.eq(left - beats),
            ]
        with m.If(self.clear):
            m.d.sync += [left.eq(0), out.valid.eq(0)]
        return m
