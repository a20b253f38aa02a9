"""Lane serializer: the lookups of a beat one after another."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .layouts import lookup, lookup_beat, ordered_lookup


class LaneSerializer(wiring.Component):
    """Put the lookups of each beat in lane order, one a cycle, and number them.

    Parameters
    ----------
    config : Config

    Members
    -------
    beats : In(stream(lookup_beat(config)))
    lookups : Out(stream(ordered_lookup(config)))
        The present lanes only, `position` counting from 0 in each batch; `last` on the batch's
        final element, which carries no lookup when the final beat has none.
    restart : In(1)
        A pulse drops the batch in progress.

    Timing
    ------
    Latency 2 cycles. A beat with n lanes present takes max(1, n) cycles, without a gap to the
    next beat.
    """

    latency = 2

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "beats": In(stream.Signature(lookup_beat(config))),
            "lookups": Out(stream.Signature(ordered_lookup(config))),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        out = self.lookups
        beat, holding = Signal(lookup_beat(self.config)), Signal()
        waiting = Signal(self.config.lanes)  # lanes of `beat` that have not left yet
        behind = waiting & (waiting - 1)  # without the lowest of them
        position = Signal(32)
        first = Signal(lookup(self.config))
        for lane in reversed(range(self.config.lanes)):
            with m.If(waiting[lane]):
                m.d.comb += first.eq(beat.lanes[lane])

        free, finishes = Signal(), Signal()
        m.d.comb += [
            free.eq(~out.valid | out.ready),
            finishes.eq(free & ~behind.any()),
            self.beats.ready.eq(~holding | finishes),
        ]
        with m.If(free):
            m.d.sync += [
                waiting.eq(behind),
                out.valid.eq(holding & (first.present | beat.last)),
                out.p.lookup.eq(first),
                out.p.position.eq(position),
                out.p.last.eq(beat.last & finishes),
            ]
            with m.If(holding):
                m.d.sync += position.eq(position + first.present)
                with m.If(finishes & beat.last):
                    m.d.sync += position.eq(0)
        with m.If(self.beats.ready):
            m.d.sync += [
                holding.eq(self.beats.valid),
                beat.eq(self.beats.p),
                [waiting[lane].eq(self.beats.valid & self.beats.p.lanes[lane].present)
                 for lane in range(self.config.lanes)],
            ]
        with m.If(self.restart):
            m.d.sync += [out.valid.eq(0), holding.eq(0), waiting.eq(0), position.eq(0)]
        return m
