"""ByteAligner: shift the lanes of a transfer from source words to destination words."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...primitives.skid_buffer import SkidBuffer
from .payloads import destination_word, lane_width, source_word


class ByteAligner(wiring.Component):
    """Rotate every source word, and join the parts of two that fall into one destination word.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    words : In(stream(source_word(config)))
    aligned : Out(stream(destination_word(config)))
        The words of each transfer's destination, with exact strobes.

    Timing
    ------
    Latency 2 cycles. A transfer takes max(s, d) cycles for s source and d destination words; one
    more if s = d > 1 and its first destination lane is below its first source lane.
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
        lanes, out = self.config.word_lanes, self.aligned
        width = self.config.bus_width
        m.submodules.skid = skid = SkidBuffer(source_word(self.config))
        connect(m, words=flipped(self.words), skid=skid.i)
        word, valid, how = skid.o.p, skid.o.valid, skid.o.p.alignment
        rotated = word.data
        for power in range(lane_width(self.config)):
            by = 32 << power
            rotated = Mux(how.rotate[power], rotated.rotate_left(by), rotated)
        current = Signal(width)
        load, advance, remains = Signal(), Signal(), Signal()
        m.d.comb += [
            skid.o.ready.eq(advance & ~remains),
            current.eq(rotated),
            advance.eq(~out.valid | out.ready),
        ]

        # A destination word joins the low lanes of the previous rotated word with the high lanes of
        # the current one. Lanes below `rotate` of a rotated word belong to the next destination
        # word, or with `needs_two` to the first one.
        previous = Signal(width)
        last_lane = Signal(lane_width(self.config))
        # `begun`: the first destination word has left. `remains`: the extra word is still to come.
        begun = Signal()
        waits = how.needs_two & word.first & ~word.last
        store, is_end = Signal(), Signal()
        end_lane = Mux(remains, last_lane, how.last_lane)
        m.d.comb += [
            load.eq(advance & valid & ~remains),
            store.eq(advance & (remains | (valid & ~waits))),
            is_end.eq(remains | (word.last & ~how.extra_word)),
        ]
        strobes = []
        with m.If(advance):
            m.d.sync += out.valid.eq(store)
        for lane in range(lanes):
            below = remains | (lane < how.rotate)
            use_previous = below & ~(how.needs_two & word.first & ~remains)
            strobe = Signal(name=f"strobe{lane}")
            m.d.comb += strobe.eq((begun | remains | (lane >= how.first_lane))
                                  & (~is_end | (lane <= end_lane)))
            strobes.append(strobe.replicate(4))
            with m.If(advance):
                m.d.sync += out.p.data.word_select(lane, 32).eq(Mux(
                    use_previous, previous.word_select(lane, 32), current.word_select(lane, 32)))
        with m.If(advance):
            m.d.sync += out.p.strobe.eq(Cat(strobes))
        with m.If(store):
            m.d.sync += [begun.eq(~is_end), remains.eq(0)]
        with m.If(load):
            m.d.sync += [previous.eq(current), last_lane.eq(how.last_lane),
                         remains.eq(word.last & how.extra_word)]
        return m
