"""Copy placement: how the words of a row's source become the words of its destination."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import STATE_ALIGNMENT, Config, log2
from .payloads import addressed_copy, lane_width, placed_copy


class CopyAlignment(wiring.Component):
    """Compute what moving a copy's words needs from its addresses.

    Parameters
    ----------
    config : Config

    Members
    -------
    copies : In(stream(addressed_copy(config)))
    placed : Out(stream(placed_copy(config)))
        Nothing moves while it is not taken.

    Timing
    ------
    Latency 1 cycle, throughput 1 copy per cycle.
    """

    latency = 1

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "copies": In(stream.Signature(addressed_copy(config))),
            "placed": Out(stream.Signature(placed_copy(config))),
        })

    def elaborate(self, platform):
        m = Module()
        copy, out = self.copies.p, self.placed
        lane, step = lane_width(self.config), log2(STATE_ALIGNMENT)
        size = copy.identity.bytes
        first, begin = copy.source[step:step + lane], copy.destination[step:step + lane]
        lanes = size >> step
        # Last lanes, counted from the first lane of the first word.
        source_end, end = Signal(12), Signal(lane + 1)
        late, single, differs = Signal(), Signal(), Signal()
        m.d.comb += [
            source_end.eq(lanes + (first - 1)),
            end.eq(lanes[:lane + 1] + (begin - 1)),
            differs.eq(source_end[lane] ^ end[lane]),  # the number of words, by one at most
            late.eq(begin < first),
            single.eq(source_end >> lane == 0),
            self.copies.ready.eq(out.ready),
        ]
        with m.If(self.copies.ready):
            m.d.sync += [
                out.valid.eq(self.copies.valid),
                out.p.placement.words.eq(source_end >> lane),
                out.p.placement.rotate.eq(begin - first),
                out.p.placement.late.eq(late),
                out.p.placement.extra.eq(Mux(late, ~differs & ~single, differs)),
                out.p.placement.begin.eq(begin),
                out.p.placement.end.eq(end),
                out.p.destination.eq(copy.destination),
                out.p.bytes.eq(size),
                out.p.two_reads.eq(copy.two_reads),
                out.p.two_writes.eq(copy.two_writes),
            ]
        return m
