"""Bag ends: where in the bus words of ids each bag of a chunk ends."""

from itertools import pairwise

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from .batch_descriptor import LENGTH_WIDTH, chunk_bags
from .length_chunks import bag_chunk


def end_width(config: Config) -> int:
    """Bits of an end, in ids from the start of the word in which its chunk begins."""
    return LENGTH_WIDTH + log2(chunk_bags(config))


def words_width(config: Config) -> int:
    """Bits of an end in words of 64-bit ids."""
    return end_width(config) - log2(config.lanes // 2)


def bag_end(config: Config) -> data.StructLayout:
    """The first id behind a bag: `words` after the word in which its chunk begins.

    `later` and `next` tell whether that is not 0, and 1; bit n of `past`, whether its lane comes
    behind lane n. An `open` bag takes all that is left of the batch, and the others do not matter.
    """
    return data.StructLayout({
        "words": words_width(config),
        "later": 1,
        "next": 1,
        "past": config.lanes - 1,
        "open": 1,
    })


def chunk_ends(config: Config) -> data.StructLayout:
    """A chunk with the `bag_end` of each of its bags, the first lowest."""
    return data.StructLayout({
        "ends": chunk_bags(config) * bag_end(config).size,
        "fault": 2,
        "final": 1,
    })


class EndLayer(wiring.Component):
    """Lay an end over the words of ids.

    Parameters
    ----------
    config : Config

    Members
    -------
    end : In(end_width(config))
    wide : In(1)
        Ids are of 64 bits, so a word has half as many.
    open : In(1)
    laid : Out(bag_end(config).size)

    Timing
    ------
    Combinational.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "end": In(end_width(config)),
            "wide": In(1),
            "open": In(1),
            "laid": Out(bag_end(config).size),
        })

    def elaborate(self, platform):
        m = Module()
        lane_width, bag = log2(self.config.lanes), data.View(bag_end(self.config), self.laid)
        words, at = Signal(words_width(self.config)), Signal(lane_width)
        m.d.comb += [
            words.eq(Mux(self.wide, self.end[lane_width - 1:], self.end[lane_width:])),
            at.eq(Mux(self.wide, self.end[:lane_width - 1], self.end[:lane_width])),
            bag.words.eq(words),
            bag.later.eq(words.any()),
            bag.next.eq(words == 1),
            bag.past.eq(Cat(at > lane for lane in range(self.config.lanes - 1))),
            bag.open.eq(self.open),
        ]
        return m


class BagEndPrefixSum(wiring.Component):
    """Add up lengths.

    The last bag of a batch is open, and so is one whose length could not be read, with all
    behind it.

    Parameters
    ----------
    config : Config

    Members
    -------
    chunks : In(stream(bag_chunk(config)))
    ends : Out(stream(chunk_ends(config)))

    Timing
    ------
    Latency 2 + log2(chunk_bags) cycles, one chunk a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "chunks": In(stream.Signature(bag_chunk(config))),
            "ends": Out(stream.Signature(chunk_ends(config))),
        })

    def elaborate(self, platform):
        m = Module()
        c, given, out = self.config, self.chunks.p, self.ends
        bags, levels = range(chunk_bags(c)), log2(chunk_bags(c))
        lane_width = log2(c.lanes)
        aside = data.StructLayout({"open": len(bags), "fault": 2, "final": 1, "wide": 1})
        asides = [Signal(aside, name=f"aside{level}") for level in range(levels + 2)]
        valid, advance = Signal(levels + 2), Signal()
        m.d.comb += [
            out.valid.eq(valid[-1]),
            advance.eq(~out.valid | out.ready),
            self.chunks.ready.eq(advance),
            asides[0].open.eq(Cat(
                given.fault.any() | given.final & (given.last_bag <= bag) for bag in bags)),
            asides[0].fault.eq(given.fault),
            asides[0].final.eq(given.final),
            asides[0].wide.eq(given.wide),
        ]
        with m.If(advance):
            m.d.sync += valid.eq(Cat(self.chunks.valid, valid[:-1]))
            m.d.sync += [after.eq(before) for before, after in pairwise(asides)]

        # Running sums: a level adds to each bag what as many bags before it as those added yet sum.
        sums = [given.lengths.word_select(bag, LENGTH_WIDTH) for bag in bags]
        for level in range(levels):
            reach = 1 << level
            following = Signal(data.ArrayLayout(LENGTH_WIDTH + level + 1, len(bags)),
                               name=f"sums{level}", reset_less=True)
            with m.If(advance):
                m.d.sync += [following[bag].eq(
                    sums[bag] + (sums[bag - reach] if bag >= reach else 0)) for bag in bags]
            sums = following

        ending = asides[levels]
        offset = Signal(lane_width)  # ids of the first word that lie before the chunk
        ends = Signal(data.ArrayLayout(end_width(c), len(bags)))
        beyond = Signal(lane_width)
        m.d.comb += beyond.eq(offset + sums[-1][:lane_width])
        with m.If(advance):
            m.d.sync += [register.eq(offset + total) for register, total in zip(ends, sums)]
            m.d.sync += offset.eq(Mux(
                valid[levels - 1],
                Mux(ending.final, 0, Mux(ending.wide, beyond[:-1], beyond)), offset))

        placed = asides[-1]
        with m.If(advance):
            m.d.sync += [out.p.fault.eq(placed.fault), out.p.final.eq(placed.final)]
        for bag in bags:
            m.submodules[f"layer{bag}"] = layer = EndLayer(c)
            m.d.comb += [layer.end.eq(ends[bag]), layer.wide.eq(placed.wide),
                         layer.open.eq(placed.open[bag])]
            with m.If(advance):
                m.d.sync += out.p.ends.word_select(bag, len(layer.laid)).eq(layer.laid)
        return m
