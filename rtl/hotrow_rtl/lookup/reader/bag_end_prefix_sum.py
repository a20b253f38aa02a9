"""Bag ends: the position in the bus words of ids where each bag of a chunk ends."""

from itertools import pairwise

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from .batch_descriptor import LENGTH_WIDTH, chunk_bags
from .length_chunks import bag_chunk


def end_width(config: Config) -> int:
    """Bits of a bag end, in ids from the start of the word in which the chunk begins."""
    return LENGTH_WIDTH + log2(chunk_bags(config))


def words_width(config: Config) -> int:
    """Bits of a bag end in words of 64-bit ids."""
    return end_width(config) - log2(config.word_lanes // 2)


def bag_end(config: Config) -> data.StructLayout:
    """The first id after a bag.

    It is `words` after the word in which the chunk begins; `later`: `words` is not 0; `next`:
    `words` is 1. Bit n of `past`: its lane is above lane n. An `open` bag owns all remaining ids of
    the batch; the other fields are then ignored.
    """
    return data.StructLayout({
        "words": words_width(config),
        "later": 1,
        "next": 1,
        "past": config.word_lanes - 1,
        "open": 1,
    })


def chunk_ends(config: Config) -> data.StructLayout:
    """The `bag_end` of each bag of a chunk, the first bag lowest."""
    return data.StructLayout({
        "ends": data.ArrayLayout(bag_end(config), chunk_bags(config)),
        "fault": 2,
        "final": 1,
    })


class BagEndPrefixSum(wiring.Component):
    """Sum the lengths of a chunk to bag ends.

    The last bag of a batch is open. Every bag of a chunk with a fault is open.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
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
        lane_width = log2(c.word_lanes)
        aside = data.StructLayout({"open": len(bags), "fault": 2, "final": 1, "wide": 1})
        asides = [Signal(aside, name=f"aside{level}") for level in range(levels + 2)]
        valid, ready = Signal(levels + 2), Signal()
        m.d.comb += [
            out.valid.eq(valid[-1]),
            ready.eq(~out.valid | out.ready),
            self.chunks.ready.eq(ready),
            asides[0].open.eq(Cat(
                given.fault.any() | given.final & (given.last_bag <= bag) for bag in bags)),
            asides[0].fault.eq(given.fault),
            asides[0].final.eq(given.final),
            asides[0].wide.eq(given.wide),
        ]
        with m.If(ready):
            m.d.sync += valid.eq(Cat(self.chunks.valid, valid[:-1]))
            m.d.sync += [after.eq(before) for before, after in pairwise(asides)]

        # Prefix sum: level n adds to each bag the sum of the 2**n bags before those already added.
        sums = [given.lengths.word_select(bag, LENGTH_WIDTH) for bag in bags]
        for level in range(levels):
            reach = 1 << level
            following = Signal(data.ArrayLayout(LENGTH_WIDTH + level + 1, len(bags)),
                               name=f"sums{level}", reset_less=True)
            with m.If(ready):
                m.d.sync += [following[bag].eq(
                    sums[bag] + (sums[bag - reach] if bag >= reach else 0)) for bag in bags]
            sums = following

        ending = asides[levels]
        offset = Signal(lane_width)  # ids of the first word before the chunk
        ends = Signal(data.ArrayLayout(end_width(c), len(bags)))
        beyond = Signal(lane_width)
        m.d.comb += beyond.eq(offset + sums[-1][:lane_width])
        with m.If(ready):
            m.d.sync += [register.eq(offset + total)
                         for register, total in zip(ends, sums, strict=True)]
            m.d.sync += offset.eq(Mux(
                valid[levels - 1],
                Mux(ending.final, 0, Mux(ending.wide, beyond[:-1], beyond)), offset))

        placed = asides[-1]
        with m.If(ready):
            m.d.sync += [out.p.fault.eq(placed.fault), out.p.final.eq(placed.final)]
            for bag in bags:
                end, words = out.p.ends[bag], Signal(words_width(c), name=f"words{bag}")
                lane = Signal(lane_width, name=f"lane{bag}")
                m.d.comb += [
                    words.eq(Mux(placed.wide, ends[bag][lane_width - 1:], ends[bag][lane_width:])),
                    lane.eq(Mux(placed.wide, ends[bag][:lane_width - 1], ends[bag][:lane_width])),
                ]
                m.d.sync += [
                    end.words.eq(words),
                    end.later.eq(words.any()),
                    end.next.eq(words == 1),
                    end.past.eq(Cat(lane > below for below in range(c.word_lanes - 1))),
                    end.open.eq(placed.open[bag]),
                ]
        return m
