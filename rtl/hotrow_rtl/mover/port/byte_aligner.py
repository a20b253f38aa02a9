"""ByteAligner: shift the bytes of a row from their place in source words to that in destination
words."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...primitives.skid_buffer import SkidBuffer
from .payloads import destination_word, lane_width, source_word


class ByteAligner(wiring.Component):
    """Rotate every source word, and join the parts of two that fall into one destination word.

    Parameters
    ----------
    config : Config

    Members
    -------
    words : In(stream(source_word(config)))
    aligned : Out(stream(destination_word(config)))
        The words of each copy's destination, strobes exact.

    Timing
    ------
    Latency 2 cycles. A copy takes max(s, d) cycles for s source and d destination words, one more
    if s = d > 1 and it begins in a lower lane of its destination than of its source.
    """

    latency = 2

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "words": In(stream.Signature(source_word(config))),
            "aligned": Out(stream.Signature(destination_word(config))),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, out = self.config.lanes, self.aligned
        width = self.config.bus_width
        m.submodules.taken = taken = SkidBuffer(source_word(self.config).size)
        item, valid = data.View(source_word(self.config), taken.o.p), taken.o.valid
        rotated = item.data
        for power in range(lane_width(self.config)):
            by = 32 << power
            rotated = Mux(item.placement.rotate[power], rotated.rotate_left(by), rotated)
        turned = Signal(width)
        take, free, remains = Signal(), Signal(), Signal()
        m.d.comb += [
            taken.i.valid.eq(self.words.valid),
            taken.i.p.eq(self.words.p.as_value()),
            self.words.ready.eq(taken.i.ready),
            taken.o.ready.eq(free & ~remains),
            turned.eq(rotated),
            free.eq(~out.valid | out.ready),
        ]

        # Lanes below `rotate` of a rotated word belong to the next destination word, or to this
        # one if it is `late`: a destination word joins the low lanes of the former rotated word
        # with the high lanes of this one.
        how = item.placement
        former = Signal(width)
        end = Signal(lane_width(self.config))
        begun = Signal()  # a word of the copy has left; when it `remains`, one is still to leave
        waits = how.late & item.first & ~item.last
        leaves, is_end = Signal(), Signal()
        last_lane = Mux(remains, end, how.end)
        m.d.comb += [
            take.eq(free & valid & ~remains),
            leaves.eq(free & (remains | (valid & ~waits))),
            is_end.eq(remains | (item.last & ~how.extra)),
        ]
        strobes = []
        with m.If(free):
            m.d.sync += out.valid.eq(leaves)
        for lane in range(lanes):
            below = remains | (lane < how.rotate)
            use_former = below & ~(how.late & item.first & ~remains)
            strobe = Signal(name=f"strobe{lane}")
            m.d.comb += strobe.eq((begun | remains | (lane >= how.begin))
                                  & (~is_end | (lane <= last_lane)))
            strobes.append(strobe.replicate(4))
            with m.If(free):
                m.d.sync += out.p.data.word_select(lane, 32).eq(Mux(
                    use_former, former.word_select(lane, 32), turned.word_select(lane, 32)))
        with m.If(free):
            m.d.sync += out.p.strobe.eq(Cat(strobes))
        with m.If(leaves):
            m.d.sync += [begun.eq(~is_end), remains.eq(0)]
        with m.If(take):
            m.d.sync += [former.eq(turned), end.eq(how.end), remains.eq(item.last & how.extra)]
        return m
