"""Dense walker: one id per bag, a bus word of ids a cycle."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .batch_order import batch_order, ids_in_word, name_lane, place, step_by_one, unchecked_beat
from .config import Config
from .layouts import Fetch


class DenseWalker(wiring.Component):
    """Name table and sample of each id of a batch that has one id in every bag.

    Every lane keeps the place of its next id and advances by the ids of a word: the remainder
    and the quotient of that number by the period. They, and where the lanes start, come from a
    walk over the first word's places, one a cycle, while memory fetches the ids.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(stream(batch_order(config)))
        Taken when the previous batch is over.
    words : In(stream)
        As from `Fetch`, exactly the words of the batch's ids.
    lookups : Out(stream(unchecked_beat(config)))

    Timing
    ------
    Combinational from `words` to `lookups`, one word a cycle, from ids-per-word + 1 cycles after
    `start` on; ids per word: `lanes`, or half as many of 64 bits.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(stream.Signature(batch_order(config))),
            "words": In(Fetch(config).members["words"].signature),
            "lookups": Out(stream.Signature(unchecked_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        c, out = self.config, self.lookups
        order = Signal(batch_order(c))
        heres = Signal(data.ArrayLayout(place(c), c.lanes))
        step = Signal(place(c))  # while seeding: the place of the next lane to be seeded
        lane = Signal(range(c.lanes))
        ids, moves = Signal(range(c.lanes + 1)), Signal()

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.start.ready.eq(1)
                m.d.sync += [order.eq(self.start.p), step.eq(0), lane.eq(0)]
                with m.If(self.start.valid):
                    m.next = "SEED"
            with m.State("SEED"):
                m.d.sync += [heres[lane].eq(step), lane.eq(lane + 1)]
                step_by_one(m, step, order.period)
                with m.If(lane == ids_in_word(c, order, last=0) - 1):
                    m.next = "WALK"
            with m.State("WALK"):
                m.d.comb += [
                    out.valid.eq(self.words.valid),
                    self.words.ready.eq(out.ready),
                    moves.eq(self.words.valid & out.ready),
                ]
                with m.If(moves & self.words.p.last):
                    m.next = "IDLE"

        m.d.comb += [
            ids.eq(ids_in_word(c, order, self.words.p.last)),
            out.p.last.eq(self.words.p.last),
        ]
        for number, here in enumerate(heres):
            ahead = Signal(len(here.inner) + 1, name=f"ahead{number}")
            wraps = ahead >= order.period
            name_lane(m, c, out.p.lanes[number], self.words.p, number, order, here)
            m.d.comb += [
                ahead.eq(here.inner + step.inner),
                out.p.lanes[number].present.eq(number < ids),
            ]
            with m.If(moves):
                m.d.sync += [
                    here.inner.eq(Mux(wraps, ahead - order.period, ahead)),
                    here.outer.eq(here.outer + step.outer + wraps),
                ]
        return m
