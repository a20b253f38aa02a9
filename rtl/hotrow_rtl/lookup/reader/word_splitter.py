"""Word splitter: the bags of a chunk that own the ids of each bus word."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from .bag_end_prefix_sum import bag_end, chunk_ends
from .batch_descriptor import batch_order, chunk_bags, owners_width


def piece(config: Config) -> data.StructLayout:
    """The part of a chunk that concerns one word of ids and the next word.

    `here` and `next` have `lanes` bits for each bag, the first bag of the chunk lowest. Bit n: the
    bag ends after lane n of this word, or of the next word. `completes`: this is the last piece of
    the word, which has `ids` ids; `last`: it is the last word of the batch.
    """
    return data.StructLayout({
        "here": chunk_bags(config) * config.word_lanes,
        "next": chunk_bags(config) * config.word_lanes,
        "owners": owners_width(config),
        "fault": 2,
        "wide": 1,
        "ids": log2(config.word_lanes) + 1,
        "completes": 1,
        "last": 1,
    })


class WordSplitter(wiring.Component):
    """Split each chunk at the ends of words.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    start : In(stream(batch_order(config)))
        Accepted when the previous batch has ended.
    ends : In(stream(chunk_ends(config)))
    owners : In(stream(owners_width(config)))
        One payload for each of `ends`.
    pieces : Out(stream(piece(config)))
        Each batch has exactly its number of words, whatever the bag ends are.

    Timing
    ------
    Latency 1 cycle. A chunk takes max(1, ends of words in it) cycles.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(stream.Signature(batch_order(config))),
            "ends": In(stream.Signature(chunk_ends(config))),
            "owners": In(stream.Signature(owners_width(config))),
            "pieces": Out(stream.Signature(piece(config))),
        })

    def elaborate(self, platform):
        m = Module()
        c, out = self.config, self.pieces
        wide, final_ids = Signal(), Signal.like(self.start.p.final_ids)
        left, at_last = Signal.like(self.start.p.words), Signal()  # remaining words; one remains
        busy, done = Signal(), Signal()  # in a batch; all of its words are output

        held = Signal()
        bags = [Signal(bag_end(c), name=f"bag{number}", reset_less=True)
                for number in range(chunk_bags(c))]
        owners = Signal.like(self.owners.p, reset_less=True)
        fault, final = Signal(2), Signal()
        tail = bags[-1]
        tail_completes, tail_closes = Signal(), Signal()  # decoded one cycle ahead
        fire, completes, exhausts, ends = (
            Signal(name=name) for name in ("fire", "completes", "exhausts", "ends"))
        m.d.comb += [
            fire.eq(held & busy & out.ready),
            completes.eq(tail_completes),
            exhausts.eq(completes & at_last),
            ends.eq(done | exhausts | tail_closes),
            out.valid.eq(held & busy & ~done),
            out.p.owners.eq(owners),
            out.p.fault.eq(fault),
            out.p.wide.eq(wide),
            out.p.ids.eq(Mux(at_last, final_ids, Mux(wide, c.word_lanes // 2, c.word_lanes))),
            out.p.completes.eq(completes),
            out.p.last.eq(at_last),
        ]
        for number, bag in enumerate(bags):
            past = Cat(bag.past, 0)
            lanes = slice(number * c.word_lanes, (number + 1) * c.word_lanes)
            m.d.comb += [
                out.p.here[lanes].eq(past | (bag.later | bag.open).replicate(c.word_lanes)),
                out.p.next[lanes].eq(past & bag.next.replicate(c.word_lanes)),
            ]

        load = Signal()
        m.d.comb += [
            load.eq(self.ends.valid & self.owners.valid & (~held | fire & ends)),
            self.ends.ready.eq(load),
            self.owners.ready.eq(load),
        ]
        with m.If(fire):
            with m.If(completes & ~done):
                m.d.sync += [left.eq(left - 1), at_last.eq(left == 2)]
            with m.If(ends):
                m.d.sync += [held.eq(0), done.eq(done | exhausts)]
                with m.If(final):
                    m.d.sync += busy.eq(0)
            continues = tail.later & ~tail.next
            m.d.sync += [tail_completes.eq(continues | tail.open),
                         tail_closes.eq(~tail.open & (~continues | (tail.words == 2)))]
            for bag in bags:
                m.d.sync += [
                    bag.words.eq(bag.words - 1),
                    bag.later.eq(bag.later & ~bag.next),
                    bag.next.eq(bag.words == 2),
                ]
                # The lane of a bag end matters in its own word only.
                with m.If(~bag.later):
                    m.d.sync += bag.past.eq(0)
        with m.If(load):
            m.d.sync += [held.eq(1), owners.eq(self.owners.p),
                         fault.eq(self.ends.p.fault), final.eq(self.ends.p.final)]
            m.d.sync += [bag.eq(end) for bag, end in zip(bags, self.ends.p.ends, strict=True)]
            given_tail = self.ends.p.ends[len(bags) - 1]
            m.d.sync += [
                tail_completes.eq(given_tail.later | given_tail.open),
                tail_closes.eq(~given_tail.open & (~given_tail.later | given_tail.next)),
            ]

        given = self.start.p
        m.d.comb += self.start.ready.eq(~busy | fire & ends & final)
        with m.If(self.start.valid & self.start.ready):
            m.d.sync += [
                busy.eq(1), done.eq(0), wide.eq(given.wide), final_ids.eq(given.final_ids),
                left.eq(given.words), at_last.eq(given.words == 1),
            ]
        return m
