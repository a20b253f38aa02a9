"""Bag chunks: the lengths of a batch's bags, half a bus word of them at a time."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...primitives.skid_buffer import SkidBuffer
from .batch_descriptor import LENGTH_WIDTH, batch_order, chunk_bags, fetched_words
from .length_buffer import kept_words


def bag_chunk(config: Config) -> data.StructLayout:
    """The lengths of consecutive bags, the first one lowest; with a `fault` they are undefined.

    The `final` chunk of a batch ends with bag number `last_bag`; `wide` ids are of 64 bits.
    """
    return data.StructLayout({
        "lengths": chunk_bags(config) * LENGTH_WIDTH,
        "fault": 2,
        "final": 1,
        "last_bag": log2(chunk_bags(config)),
        "wide": 1,
    })


class LengthChunks(wiring.Component):
    """Take each half of a bus word of lengths as a chunk, or say one id a bag for a dense batch.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(stream(batch_order(config)))
        Taken when the previous batch is over.
    kept : In(stream)
        As from `LengthBuffer`: the words of the batches whose lengths are kept.
    fetched : In(stream)
        As from `ReadClient`: the words of the other jagged batches.
    fetches : Out(1)
        The next word fetched is for this unit.
    chunks : Out(stream(bag_chunk(config)))
        For a rigid pipeline, see `SkidBuffer`.

    Timing
    ------
    Latency 1 cycle from a word, or 2 from `start`, to a chunk; one chunk a cycle, from batch to
    batch as well.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(stream.Signature(batch_order(config))),
            "kept": In(kept_words(config)),
            "fetched": In(fetched_words(config)),
            "fetches": Out(1),
            "chunks": Out(stream.Signature(bag_chunk(config))),
        })

    def elaborate(self, platform):
        m = Module()
        c, out, given = self.config, self.chunks, self.start.p
        m.submodules.skid = skid = SkidBuffer(bag_chunk(c).size, rigid=True)
        chunk = data.View(bag_chunk(c), skid.i.p)
        busy, jagged, kept = (Signal(name=name) for name in ("busy", "jagged", "kept"))
        wide, last_bag = Signal.like(given.wide), Signal.like(given.last_bag)
        left, final = Signal.like(given.chunks), Signal()  # chunks, and whether one is left
        word, lengths = Signal(c.bus_width), Signal.like(chunk.lengths)
        upper = Signal()  # the half of the word that is next
        has, moves = Signal(), Signal()
        m.d.comb += [
            self.fetches.eq(busy & jagged & ~kept),
            word.eq(Mux(kept, self.kept.p.data, self.fetched.p.data)),
            lengths.eq(word.word_select(upper, len(lengths))),
            has.eq(~jagged | Mux(kept, self.kept.valid, self.fetched.valid)),
            moves.eq(busy & skid.i.ready & has),
            skid.i.valid.eq(busy & has),
            chunk.lengths.eq(lengths),
            chunk.fault.eq(Mux(jagged & ~kept, self.fetched.p.fault, 0)),
            chunk.final.eq(final),
            chunk.last_bag.eq(last_bag),
            chunk.wide.eq(wide),
            out.valid.eq(skid.o.valid),
            Value.cast(out.p).eq(skid.o.p),
            skid.o.ready.eq(out.ready),
            self.kept.ready.eq(moves & jagged & kept & (upper | final)),
            self.fetched.ready.eq(moves & jagged & ~kept & (upper | final)),
            self.start.ready.eq(~busy | moves & final),
        ]
        with m.If(~jagged):
            m.d.comb += lengths.eq(Cat(Const(1, LENGTH_WIDTH) for _ in range(chunk_bags(c))))
        with m.If(moves):
            m.d.sync += [
                left.eq(left - 1),
                final.eq(left == 2),
                busy.eq(~final),
                upper.eq(~upper & ~final),
            ]
        with m.If(self.start.valid & self.start.ready):
            m.d.sync += [
                busy.eq(1), jagged.eq(given.jagged), kept.eq(given.kept),
                wide.eq(given.wide), last_bag.eq(given.last_bag),
                left.eq(given.chunks), final.eq(given.chunks == 1),
            ]
        return m
