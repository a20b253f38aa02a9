"""Page cutter: spans of bytes as AXI bursts that cross no page."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config, log2
from .row_layouts import PAGE_WIDTH, burst, span


def crosses_page(address, size):
    """Whether `size` bytes (1 to 4096) from `address` lie in two pages."""
    return (address[:PAGE_WIDTH] + size - 1)[PAGE_WIDTH]


class PageCutter(wiring.Component):
    """Cut each span at the page boundary, if it crosses one.

    Parameters
    ----------
    config : Config

    Members
    -------
    spans : In(stream(span(config)))
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
        address, out = self.spans.p.address, self.bursts
        second = Signal()
        crosses = crosses_page(address, self.spans.p.bytes)
        final = (address[:PAGE_WIDTH] + self.spans.p.bytes - 1)[word:PAGE_WIDTH]  # word in its page
        first = address[word:PAGE_WIDTH]
        last_of_page = 2 ** (PAGE_WIDTH - word) - 1
        free = ~out.valid | out.ready
        m.d.comb += self.spans.ready.eq(free & (second | ~crosses))
        with m.If(free):
            m.d.sync += out.valid.eq(self.spans.valid)
            with m.If(self.spans.valid):
                m.d.sync += [
                    second.eq(crosses & ~second),
                    out.p.address.eq(Mux(
                        second,
                        Cat(Const(0, PAGE_WIDTH), (address >> PAGE_WIDTH) + 1),
                        Cat(Const(0, word), address >> word))),
                    out.p.length.eq(Mux(
                        second, final, Mux(crosses, last_of_page, final) - first)),
                ]
        return m
