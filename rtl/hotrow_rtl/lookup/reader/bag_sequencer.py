"""Bag sequencer: table and sample of every id of a batch, a bus word of ids a cycle."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...primitives.skid_buffer import SkidBuffer
from .bag_end_prefix_sum import BagEndPrefixSum
from .bag_indexer import BagIndexer
from .batch_descriptor import batch_order, fetched_words, owners_width, unchecked_word
from .lane_assigner import LaneAssigner
from .length_buffer import kept_words
from .length_chunks import LengthChunks
from .word_splitter import WordSplitter, piece


class BagSequencer(wiring.Component):
    """Compute the end and the owner of every bag, and assign both to the lanes of the ids.

    Every id of a batch is delivered once, whatever the lengths are: the last bag, and a bag whose
    length has a bus fault, own all remaining ids. In the second case the lookups carry the fault.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    chunks, owners, words : In(stream(batch_order(config)))
        The same descriptor for three units; each accepts it when it has ended the previous batch.
    kept, fetched : In(stream)
        Lengths, see `LengthChunks`.
    fetches : Out(1)
        The next word of the lengths is for this unit.
    ids : In(stream)
        The words of `ReadClient`, exactly the ids of each batch.
    lookups : Out(stream(unchecked_word(config)))
        A beat is a bus word of ids.

    Timing
    ------
    A chunk of lengths takes max(1, ends of words in it) cycles. The first word is accepted at the
    earliest chunk_bags + 8 cycles after the descriptor; combinational from `ids` to `lookups`.
    """

    def __init__(self, config: Config):
        self.config = config
        orders = stream.Signature(batch_order(config))
        super().__init__({
            "chunks": In(orders),
            "owners": In(orders),
            "words": In(orders),
            "kept": In(kept_words(config)),
            "fetched": In(fetched_words(config)),
            "fetches": Out(1),
            "ids": In(fetched_words(config)),
            "lookups": Out(stream.Signature(unchecked_word(config))),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        m.submodules.chunker = chunker = LengthChunks(c)
        m.submodules.ends = ends = BagEndPrefixSum(c)
        m.submodules.indexer = indexer = BagIndexer(c)
        m.submodules.splitter = splitter = WordSplitter(c)
        m.submodules.skid = skid = SkidBuffer(piece(c), rigid=True)
        m.submodules.owners = owners = SkidBuffer(owners_width(c))
        m.submodules.lanes = lanes = LaneAssigner(c)
        connect(m, orders=flipped(self.chunks), chunker=chunker.start)
        connect(m, orders=flipped(self.owners), indexer=indexer.start)
        connect(m, orders=flipped(self.words), splitter=splitter.start)
        connect(m, store=flipped(self.kept), chunker=chunker.kept)
        connect(m, port=flipped(self.fetched), chunker=chunker.fetched)
        connect(m, chunker=chunker.chunks, ends=ends.chunks)
        connect(m, ends=ends.ends, splitter=splitter.ends)
        connect(m, indexer=indexer.owners, owners=owners.i)
        connect(m, owners=owners.o, splitter=splitter.owners)
        connect(m, port=flipped(self.ids), lanes=lanes.words)
        connect(m, lanes=lanes.lookups, lookups=flipped(self.lookups))
        connect(m, splitter=splitter.pieces, skid=skid.i)
        connect(m, skid=skid.o, lanes=lanes.pieces)
        m.d.comb += self.fetches.eq(chunker.fetches)
        return m
