"""Copy placement: how the words of a row's source become the words of its destination."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import STATE_ALIGNMENT, Config, log2
from .page_cutter import crosses_page
from .row_layouts import addressed_copy, lane_width, placed_copy


class CopyPlacement(wiring.Component):
    """Compute what moving a copy's words needs from its addresses.

    Parameters
    ----------
    config : Config

    Members
    -------
    copies : In(stream(addressed_copy(config)))
    placed : Out(stream(placed_copy(config)))

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
        source_end, end = Signal(12), Signal(12)
        late, single = Signal(), Signal()
        m.d.comb += [
            source_end.eq(first + lanes - 1),
            end.eq(begin + lanes - 1),
            late.eq(begin < first),
            single.eq(source_end >> lane == 0),
            self.copies.ready.eq(~out.valid | out.ready),
        ]
        more = (end >> lane) > (source_end >> lane)
        as_many = (end >> lane) == (source_end >> lane)
        with m.If(self.copies.ready):
            m.d.sync += [
                out.valid.eq(self.copies.valid),
                out.p.placement.words.eq(source_end >> lane),
                out.p.placement.rotate.eq(begin - first),
                out.p.placement.late.eq(late),
                out.p.placement.extra.eq((~late & more) | (late & as_many & ~single)),
                out.p.placement.begin.eq(begin),
                out.p.placement.end.eq(end),
                out.p.destination.eq(copy.destination),
                out.p.bytes.eq(size),
                out.p.two_reads.eq(crosses_page(copy.source, size)),
                out.p.two_writes.eq(crosses_page(copy.destination, size)),
            ]
        return m
