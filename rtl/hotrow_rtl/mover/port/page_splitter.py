"""PageSplitter: byte ranges as AXI bursts that cross no page."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import STATE_ALIGNMENT, Config, log2
from ...primitives.skid_buffer import SkidBuffer
from .payloads import PAGE_WIDTH, burst, byte_range


def crosses_page(address, size):
    """Whether `size` bytes (1 to 4096) from `address` lie in two pages; both are multiples of 4."""
    step = log2(STATE_ALIGNMENT)
    return (address[step:PAGE_WIDTH] + (size >> step) - 1)[PAGE_WIDTH - step]


class PageSplitter(wiring.Component):
    """Split each range that crosses a page at the boundary.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    ranges : In(stream(byte_range(config)))
        `ready` depends on `crosses` and on registers.
    bursts : Out(stream(burst(config)))
        One or two per range, whole bus words, at most 256.

    Timing
    ------
    Latency 1 cycle, throughput 1 burst per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "ranges": In(stream.Signature(byte_range(config))),
            "bursts": Out(stream.Signature(burst(config))),
        })

    def elaborate(self, platform):
        m = Module()
        word = log2(self.config.bus_bytes)
        address, crosses = self.ranges.p.address, self.ranges.p.crosses
        m.submodules.skid = skid = SkidBuffer(burst(self.config))
        split = skid.i.p
        second = Signal()
        step = log2(STATE_ALIGNMENT)
        word_in_page = address[word:PAGE_WIDTH]
        len_minus_1 = Signal(PAGE_WIDTH - word + 1)  # of the whole range
        m.d.comb += len_minus_1.eq(
            ((self.ranges.p.bytes >> step) + (address[step:word] - 1)) >> (word - step))
        m.d.comb += [
            self.ranges.ready.eq(skid.i.ready & (second | ~crosses)),
            skid.i.valid.eq(self.ranges.valid),
            split.address.eq(Mux(
                second,
                Cat(Const(0, PAGE_WIDTH), (address >> PAGE_WIDTH) + 1),
                Cat(Const(0, word), address >> word))),
            split.len_minus_1.eq(Mux(
                second, (word_in_page + len_minus_1)[:len(word_in_page)],
                Mux(crosses, ~word_in_page, len_minus_1))),
        ]
        connect(m, skid=skid.o, bursts=flipped(self.bursts))
        with m.If(self.ranges.valid & skid.i.ready):
            m.d.sync += second.eq(crosses & ~second)
        return m
