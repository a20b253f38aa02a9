"""Word walk: which bags of a chunk the ids of each bus word belong to."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from .bag_end_prefix_sum import bag_end, chunk_ends
from .batch_descriptor import batch_order, chunk_bags, names_width


def piece(config: Config) -> data.StructLayout:
    """What a chunk says about a word of ids and the one behind it.

    Bit n of a bag, the chunk's first bag lowest, in `here` and `behind`: whether it ends after
    lane n of the word, or of the one behind. When `leaves`, nothing more is to be said about the
    word, which has so many `ids`, and is the batch's when `last`.
    """
    return data.StructLayout({
        "here": chunk_bags(config) * config.lanes,
        "behind": chunk_bags(config) * config.lanes,
        "names": names_width(config),
        "fault": 2,
        "wide": 1,
        "ids": log2(config.lanes) + 1,
        "leaves": 1,
        "last": 1,
    })


class WordSplitter(wiring.Component):
    """Walk over the words of each batch, chunk by chunk.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(stream(batch_order(config)))
        Taken when the previous batch is over.
    ends : In(stream(chunk_ends(config)))
    names : In(stream(names_width(config)))
        One for each of `ends`.
    pieces : Out(stream(piece(config)))
        For each batch exactly its words leave, whatever the ends say.

    Timing
    ------
    Latency 1 cycle. A chunk takes max(1, ends of words in it) cycles.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(stream.Signature(batch_order(config))),
            "ends": In(stream.Signature(chunk_ends(config))),
            "names": In(stream.Signature(names_width(config))),
            "pieces": Out(stream.Signature(piece(config))),
        })

    def elaborate(self, platform):
        m = Module()
        c, out = self.config, self.pieces
        wide, final_ids = Signal(), Signal.like(self.start.p.final_ids)
        left, at_last = Signal.like(self.start.p.words), Signal()  # words, and whether one is left
        busy, done = Signal(), Signal()  # in a batch, and all its words have left

        held = Signal()
        bags = [Signal(bag_end(c), name=f"bag{number}", reset_less=True)
                for number in range(chunk_bags(c))]
        names = Signal.like(self.names.p, reset_less=True)
        fault, final = Signal(2), Signal()
        tail = bags[-1]
        tail_leaves, tail_closes = Signal(), Signal()  # what follows from it, a cycle ahead
        moves, leaves, exhausts, ends = (
            Signal(name=name) for name in ("moves", "leaves", "exhausts", "ends"))
        m.d.comb += [
            moves.eq(held & busy & out.ready),
            leaves.eq(tail_leaves),
            exhausts.eq(leaves & at_last),
            ends.eq(done | exhausts | tail_closes),
            out.valid.eq(held & busy & ~done),
            out.p.names.eq(names),
            out.p.fault.eq(fault),
            out.p.wide.eq(wide),
            out.p.ids.eq(Mux(at_last, final_ids, Mux(wide, c.lanes // 2, c.lanes))),
            out.p.leaves.eq(leaves),
            out.p.last.eq(at_last),
        ]
        for number, bag in enumerate(bags):
            past, lanes = Cat(bag.past, 0), slice(number * c.lanes, (number + 1) * c.lanes)
            m.d.comb += [
                out.p.here[lanes].eq(past | (bag.later | bag.open).replicate(c.lanes)),
                out.p.behind[lanes].eq(past & bag.next.replicate(c.lanes)),
            ]

        take = Signal()
        m.d.comb += [
            take.eq(self.ends.valid & self.names.valid & (~held | moves & ends)),
            self.ends.ready.eq(take),
            self.names.ready.eq(take),
        ]
        with m.If(moves):
            with m.If(leaves & ~done):
                m.d.sync += [left.eq(left - 1), at_last.eq(left == 2)]
            with m.If(ends):
                m.d.sync += [held.eq(0), done.eq(done | exhausts)]
                with m.If(final):
                    m.d.sync += busy.eq(0)
            stays = tail.later & ~tail.next
            m.d.sync += [tail_leaves.eq(stays | tail.open),
                         tail_closes.eq(~tail.open & (~stays | (tail.words == 2)))]
            for bag in bags:
                m.d.sync += [
                    bag.words.eq(bag.words - 1),
                    bag.later.eq(bag.later & ~bag.next),
                    bag.next.eq(bag.words == 2),
                ]
                # The lane of an end counts in its own word alone.
                with m.If(~bag.later):
                    m.d.sync += bag.past.eq(0)
        with m.If(take):
            m.d.sync += [held.eq(1), names.eq(self.names.p),
                         fault.eq(self.ends.p.fault), final.eq(self.ends.p.final)]
            m.d.sync += [bag.as_value().eq(self.ends.p.ends.word_select(number, bag.shape().size))
                         for number, bag in enumerate(bags)]
            given_tail = data.View(tail.shape(), self.ends.p.ends.word_select(
                len(bags) - 1, tail.shape().size))
            m.d.sync += [
                tail_leaves.eq(given_tail.later | given_tail.open),
                tail_closes.eq(~given_tail.open & (~given_tail.later | given_tail.next)),
            ]

        given = self.start.p
        m.d.comb += self.start.ready.eq(~busy | moves & ends & final)
        with m.If(self.start.valid & self.start.ready):
            m.d.sync += [
                busy.eq(1), done.eq(0), wide.eq(given.wide), final_ids.eq(given.final_ids),
                left.eq(given.words), at_last.eq(given.words == 1),
            ]
        return m
