"""Length chunks: the lengths of the bags of a batch, half a bus word at a time."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config, log2
from ...primitives.skid_buffer import SkidBuffer
from .batch_descriptor import LENGTH_WIDTH, batch_order, chunk_bags, fetched_words
from .length_buffer import kept_words


def bag_chunk(config: Config) -> data.StructLayout:
    """The lengths of consecutive bags, the first bag lowest; undefined with a `fault`.

    The `final` chunk of a batch ends with bag `last_bag`; `wide` ids have 64 bits.
    """
    return data.StructLayout({
        "lengths": chunk_bags(config) * LENGTH_WIDTH,
        "fault": 2,
        "final": 1,
        "last_bag": log2(chunk_bags(config)),
        "wide": 1,
    })


class LengthChunks(wiring.Component):
    """Return each half of a bus word of lengths as a chunk, or lengths of 1 for a dense batch.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    start : In(stream(batch_order(config)))
        Accepted when the previous batch has ended.
    kept : In(stream)
        From `LengthBuffer`: the words of batches whose lengths are kept.
    fetched : In(stream)
        From `ReadClient`: the words of the other jagged batches.
    fetches : Out(1)
        The next word of the lengths is for this unit.
    chunks : Out(stream(bag_chunk(config)))
        Drives a rigid pipeline, see `SkidBuffer`.

    Timing
    ------
    Latency 1 cycle from a word, or 2 from `start`, to a chunk; one chunk a cycle, without a gap
    between batches.
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
        m.submodules.skid = skid = SkidBuffer(bag_chunk(c), rigid=True)
        chunk = skid.i.p
        busy, jagged, kept = (Signal(name=name) for name in ("busy", "jagged", "kept"))
        wide, last_bag = Signal.like(given.wide), Signal.like(given.last_bag)
        left, final = Signal.like(given.chunks), Signal()  # remaining chunks; one remains
        word, lengths = Signal(c.bus_width), Signal.like(chunk.lengths)
        upper = Signal()  # the next half of the word
        valid, fire = Signal(), Signal()
        connect(m, skid.o, flipped(out))
        m.d.comb += [
            self.fetches.eq(busy & jagged & ~kept),
            word.eq(Mux(kept, self.kept.p.data, self.fetched.p.data)),
            lengths.eq(word.word_select(upper, len(lengths))),
            valid.eq(~jagged | Mux(kept, self.kept.valid, self.fetched.valid)),
            fire.eq(busy & skid.i.ready & valid),
            skid.i.valid.eq(busy & valid),
            chunk.lengths.eq(lengths),
            chunk.fault.eq(Mux(jagged & ~kept, self.fetched.p.fault, 0)),
            chunk.final.eq(final),
            chunk.last_bag.eq(last_bag),
            chunk.wide.eq(wide),
            self.kept.ready.eq(fire & jagged & kept & (upper | final)),
            self.fetched.ready.eq(fire & jagged & ~kept & (upper | final)),
            self.start.ready.eq(~busy | fire & final),
        ]
        with m.If(~jagged):
            m.d.comb += lengths.eq(Cat(Const(1, LENGTH_WIDTH) for _ in range(chunk_bags(c))))
        with m.If(fire):
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
