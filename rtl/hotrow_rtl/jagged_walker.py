"""Jagged walker: bags of any length, a bag or a bus word of ids a cycle."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .batch_order import batch_order, name_lane, place, step_by_one, unchecked_beat
from .config import Config
from .layouts import Fetch, element


class JaggedWalker(wiring.Component):
    """Name table and sample of each id of a batch with a length per bag.

    The ids of a batch are exactly its `count`, whatever the lengths say: the last bag, and one
    whose length could not be read, take all that is left. The lookups of the latter carry the
    fault of the length.

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
        bag, bag_valid = Signal(element(16)), Signal()
        lane = Signal(range(c.lanes))  # the next id's
        lanes = Mux(order.wide, c.lanes // 2, c.lanes)
        room, taken = Signal(range(c.lanes + 1)), Signal(range(c.lanes + 1))
        end = Signal(range(c.lanes + 1))
        greedy = bag.last | (bag.fault != 0)  # takes all that is left
        exhausted = order.count == 0
        bag_ends, final, moves = Signal(), Signal(), Signal()

        def least(wide, narrow):
            return Mux(wide < narrow, wide[:len(narrow)], narrow)

        empty = exhausted | ~greedy & (bag.value == 0)
        reach = Signal.like(room)  # ids left in the word
        m.d.comb += [
            room.eq(lanes - lane),
            reach.eq(least(order.count, room)),
            taken.eq(Mux(greedy, reach, least(bag.value, reach))),
            end.eq(lane + taken),
            final.eq(order.count == taken),
            bag_ends.eq(empty | Mux(greedy, final, bag.value == taken)),
        ]

        m.d.comb += [
            self.start.ready.eq(~active),
            out.valid.eq(bag_valid & ~empty & self.words.valid),
            out.p.last.eq(final),
            moves.eq(out.valid & out.ready),
            self.words.ready.eq(moves & (final | (end == lanes))),
        ]
        for number, id_lane in enumerate(out.p.lanes):
            name_lane(m, c, id_lane, self.words.p, number, order, here)
            m.d.comb += id_lane.present.eq((number >= lane) & (number < end))
            with m.If(bag.fault != 0):
                m.d.comb += id_lane.fault.eq(bag.fault)
        with m.If(moves):
            m.d.sync += [
                order.count.eq(order.count - taken),  # what is left of it
                bag.value.eq(bag.value - taken),
                lane.eq(Mux(self.words.ready, 0, end)),
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
                active.eq(1), order.eq(self.start.p), here.eq(0), lane.eq(0), bag_valid.eq(0)]
        return m
