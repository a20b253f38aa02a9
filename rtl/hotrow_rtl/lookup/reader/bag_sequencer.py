"""Bag walk: table and sample of every id of a batch, a bus word of ids a cycle."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...primitives.skid_buffer import SkidBuffer
from .bag_end_prefix_sum import BagEndPrefixSum
from .bag_indexer import BagIndexer
from .batch_descriptor import batch_order, fetched_words, names_width, unchecked_beat
from .lane_assigner import LaneAssigner
from .length_buffer import kept_words
from .length_chunks import LengthChunks
from .word_splitter import WordSplitter, piece


class BagSequencer(wiring.Component):
    """Find out where bags end and who they are, then lay both out over the words of ids.

    All ids of a batch are delivered, once, whatever the lengths say: the last bag, and one whose
    length could not be read, take all that is left. The lookups of the latter carry the fault of
    the length.

    Parameters
    ----------
    config : Config

    Members
    -------
    chunks, places, words : In(stream(batch_order(config)))
        The same order for each, taken apart, as each is done with the batch before.
    kept, fetched : In(stream)
        Lengths, as of `LengthChunks`.
    fetches : Out(1)
        The next word fetched is for this unit.
    ids : In(stream)
        As from `ReadClient`, exactly the words of each batch's ids.
    lookups : Out(stream(unchecked_beat(config)))
        A beat is a bus word of ids.

    Timing
    ------
    A chunk of lengths takes max(1, ends of words in it) cycles. The first word is taken at the
    earliest chunk_bags + 8 cycles after the orders; combinational from `ids` to `lookups`.
    """

    def __init__(self, config: Config):
        self.config = config
        orders = stream.Signature(batch_order(config))
        super().__init__({
            "chunks": In(orders),
            "places": In(orders),
            "words": In(orders),
            "kept": In(kept_words(config)),
            "fetched": In(fetched_words(config)),
            "fetches": Out(1),
            "ids": In(fetched_words(config)),
            "lookups": Out(stream.Signature(unchecked_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        m.submodules.cutter = cutter = LengthChunks(c)
        m.submodules.ends = ends = BagEndPrefixSum(c)
        m.submodules.namer = namer = BagIndexer(c)
        m.submodules.walk = walk = WordSplitter(c)
        m.submodules.skid = skid = SkidBuffer(piece(c).size, rigid=True)
        m.submodules.names = names = SkidBuffer(names_width(c))
        m.submodules.fill = fill = LaneAssigner(c)
        connect(m, orders=flipped(self.chunks), cutter=cutter.start)
        connect(m, orders=flipped(self.places), namer=namer.start)
        connect(m, orders=flipped(self.words), walk=walk.start)
        connect(m, store=flipped(self.kept), cutter=cutter.kept)
        connect(m, port=flipped(self.fetched), cutter=cutter.fetched)
        connect(m, cutter=cutter.chunks, ends=ends.chunks)
        connect(m, ends=ends.ends, walk=walk.ends)
        connect(m, namer=namer.names, names=names.i)
        connect(m, names=names.o, walk=walk.names)
        connect(m, port=flipped(self.ids), fill=fill.words)
        connect(m, fill=fill.lookups, lookups=flipped(self.lookups))
        m.d.comb += [
            self.fetches.eq(cutter.fetches),
            skid.i.valid.eq(walk.pieces.valid),
            skid.i.p.eq(walk.pieces.p.as_value()),
            walk.pieces.ready.eq(skid.i.ready),
            fill.pieces.valid.eq(skid.o.valid),
            fill.pieces.p.eq(skid.o.p),
            skid.o.ready.eq(fill.pieces.ready),
        ]
        return m
