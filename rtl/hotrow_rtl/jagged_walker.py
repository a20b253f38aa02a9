"""Jagged walker: bags of any length, a bag or a bus word of ids a cycle."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .batch_order import (
    batch_order,
    ids_in_word,
    name_lane,
    place,
    step_by_one,
    unchecked_beat,
)
from .config import Config
from .layouts import Fetch, element


class JaggedWalker(wiring.Component):
    """Name table and sample of each id of a batch with a length per bag.

    All ids of a batch are delivered, once, whatever the lengths say: the last bag, and one whose
    length could not be read, take all that is left. The lookups of the latter carry the fault of
    the length.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(stream(batch_order(config)))
        Taken when the previous batch is over.
    lengths : In(stream(element(16)))
        One per bag, in order.
    words : In(stream)
        As from `Fetch`, exactly the words of the batch's ids.
    lookups : Out(stream(unchecked_beat(config)))
        Each beat holds the ids that one bag has in one bus word.

    Timing
    ------
    A bag takes max(1, words that it touches) cycles: empty bags one, and a word that several bags
    share one per bag. Latency 1 cycle from a length to its ids.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(stream.Signature(batch_order(config))),
            "lengths": In(stream.Signature(element(16))),
            "words": In(Fetch(config).members["words"].signature),
            "lookups": Out(stream.Signature(unchecked_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        c, out = self.config, self.lookups
        order, here = Signal(batch_order(c)), Signal(place(c))
        active = Signal()  # between `start` and the end of the last bag
        exhausted = Signal()  # the final id has left
        bag, bag_valid = Signal(element(16)), Signal()
        lane = Signal(range(c.lanes))  # the next id's
        ids, room, taken, end = (Signal(range(c.lanes + 1), name=name)
                                 for name in ("ids", "room", "taken", "end"))
        greedy = bag.last | (bag.fault != 0)  # takes all that is left
        empty, word_ends, final, bag_ends, moves = (
            Signal(name=name) for name in ("empty", "word_ends", "final", "bag_ends", "moves"))
        fits = bag.value <= room
        m.d.comb += [
            empty.eq(exhausted | ~greedy & (bag.value == 0)),
            ids.eq(ids_in_word(c, order, self.words.p.last)),
            room.eq(ids - lane),
            taken.eq(Mux(greedy | ~fits, room, bag.value)),
            end.eq(lane + taken),
            word_ends.eq(end == ids),
            final.eq(word_ends & self.words.p.last),
            bag_ends.eq(empty | Mux(greedy, final, fits)),
        ]

        m.d.comb += [
            self.start.ready.eq(~active),
            out.valid.eq(bag_valid & ~empty & self.words.valid),
            out.p.last.eq(final),
            moves.eq(out.valid & out.ready),
            self.words.ready.eq(moves & word_ends),
        ]
        for number, id_lane in enumerate(out.p.lanes):
            name_lane(m, c, id_lane, self.words.p, number, order, here)
            m.d.comb += id_lane.present.eq((number >= lane) & (number < end))
            with m.If(bag.fault != 0):
                m.d.comb += id_lane.fault.eq(bag.fault)
        with m.If(moves):
            m.d.sync += [
                bag.value.eq(bag.value - taken),  # what is left of it
                lane.eq(Mux(word_ends, 0, end)),
                exhausted.eq(final),
            ]

        passes = bag_ends & (moves | empty)
        m.d.comb += self.lengths.ready.eq(active & (~bag_valid | passes & ~bag.last))
        with m.If(bag_valid & passes):
            step_by_one(m, here, order.period)
            m.d.sync += [bag_valid.eq(0), active.eq(~bag.last)]
        with m.If(self.lengths.valid & self.lengths.ready):
            m.d.sync += [bag.eq(self.lengths.p), bag_valid.eq(1)]
        with m.If(self.start.valid & self.start.ready):
            m.d.sync += [
                active.eq(1), exhausted.eq(0), order.eq(self.start.p), here.eq(0), lane.eq(0),
                bag_valid.eq(0),
            ]
        return m
