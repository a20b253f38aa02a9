"""Page cutter: spans of bytes as AXI bursts that cross no page."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import STATE_ALIGNMENT, Config, log2
from ...primitives.skid_buffer import SkidBuffer
from .payloads import PAGE_WIDTH, burst, span


def crosses_page(address, size):
    """Whether `size` bytes (1 to 4096) from `address` lie in two pages; both in steps of 4."""
    step = log2(STATE_ALIGNMENT)
    return (address[step:PAGE_WIDTH] + (size >> step) - 1)[PAGE_WIDTH - step]


class PageSplitter(wiring.Component):
    """Cut each span that crosses a page at the boundary.

    Parameters
    ----------
    config : Config

    Members
    -------
    spans : In(stream(span(config)))
        Ready depends on `crosses` and on registers.
    bursts : Out(stream(burst(config)))
        One or two of each span, whole bus words; at most 256 words since a page has no more.

    Timing
    ------
    Latency 1 cycle, throughput 1 burst per cycle.
    """

    latency = 1

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "spans": In(stream.Signature(span(config))),
            "bursts": Out(stream.Signature(burst(config))),
        })

    def elaborate(self, platform):
        m = Module()
        word = log2(self.config.bus_bytes)
        address, crosses = self.spans.p.address, self.spans.p.crosses
        m.submodules.skid = skid = SkidBuffer(burst(self.config).size)
        cut = data.View(burst(self.config), skid.i.p)
        second = Signal()
        step = log2(STATE_ALIGNMENT)
        first = address[word:PAGE_WIDTH]  # word in its page
        length = Signal(PAGE_WIDTH - word + 1)  # words of the span less one
        m.d.comb += length.eq(
            ((self.spans.p.bytes >> step) + (address[step:word] - 1)) >> (word - step))
        m.d.comb += [
            self.spans.ready.eq(skid.i.ready & (second | ~crosses)),
            skid.i.valid.eq(self.spans.valid),
            cut.address.eq(Mux(
                second,
                Cat(Const(0, PAGE_WIDTH), (address >> PAGE_WIDTH) + 1),
                Cat(Const(0, word), address >> word))),
            cut.length.eq(Mux(second, (first + length)[:len(first)], Mux(crosses, ~first, length))),
            self.bursts.valid.eq(skid.o.valid),
            Value.cast(self.bursts.p).eq(skid.o.p),
            skid.o.ready.eq(self.bursts.ready),
        ]
        with m.If(self.spans.valid & skid.i.ready):
            m.d.sync += second.eq(crosses & ~second)
        return m
