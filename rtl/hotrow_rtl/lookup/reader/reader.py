"""Lookup reader: the ids of a batch, each with its table, its sample and a range check."""

from amaranth import Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...interfaces.records import ReadClient, command, lookup_beat, table_update
from .batch_descriptor import unchecked_beat, unchecked_word
from .batch_fetch import BatchFetch, verdict
from .range_check import RangeCheck

__all__ = ["LookupReader", "verdict"]


class LaneSerializer(wiring.Component):
    """Split each word of ids into beats of one id.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    words : In(stream(unchecked_word(config)))
        At least the first lane is present.
    beats : Out(stream(unchecked_beat(config)))

    Timing
    ------
    Combinational, one id a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "words": In(stream.Signature(unchecked_word(config))),
            "beats": Out(stream.Signature(unchecked_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        words, beats, lanes = self.words, self.beats, self.config.word_lanes
        place, final = Signal(range(lanes)), Signal()
        with m.Switch(place):
            for number, lane in enumerate(words.p.lanes):
                with m.Case(number):
                    following = words.p.lanes[number + 1].present if number + 1 < lanes else 0
                    m.d.comb += [beats.p.lanes[0].eq(lane), final.eq(~following)]
        m.d.comb += [
            beats.valid.eq(words.valid),
            beats.p.last.eq(words.p.last & final),
            words.ready.eq(beats.ready & final),
        ]
        with m.If(beats.valid & beats.ready):
            m.d.sync += place.eq(Mux(final, 0, place + 1))
        return m


class LookupReader(wiring.Component):
    """Read the ids of batches and return beats of lookups.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    command : In(stream(command))
        A batch that passed the checks of the queue, with byte addresses.
    table_update : In(table_update(config))
        Table descriptors, written by the host.
    ids, lengths : Out(ReadClient(config))
    verdict : Out(stream(verdict))
        One per command, in order, before its first beat. OK: beats follow. Otherwise the reader
        refuses the command, for the sum of its lengths (LOOKUPS, `error_index` is the sum) or for
        a bus fault on the lengths, and returns no beats.
    beats : Out(stream(lookup_beat(config)))
        The lookups in the order of the ids in memory; `last` on the beat with the final id.
    restart : In(1)
        A pulse drops the command in progress and keeps the table descriptors.
    ready : Out(1)
        High once the table descriptors are cleared after reset.

    Timing
    ------
    A beat is one bus word of ids, valid 3 cycles after its word, or with one lane one id; one beat
    a cycle. If a word holds ids of more bags than it has ids of 32 bits, the reader processes half
    a bus word of lengths a cycle.
    The ids of a jagged batch are requested after `LengthSum` has summed its lengths.

    The reader prefetches one batch: it accepts a command, requests its lists and returns its
    verdict while it delivers the previous batch. There is no gap between batches of more words than
    the memory's latency if the read port buffers as many words as the latency has cycles. Lengths
    of more than `config.stored_lengths` bags are read twice; the sum of the next batch then waits
    for the end of the second read.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "command": In(stream.Signature(command)),
            "table_update": In(table_update(config)),
            "ids": Out(ReadClient(config)),
            "lengths": Out(ReadClient(config)),
            "verdict": Out(stream.Signature(verdict)),
            "beats": Out(stream.Signature(lookup_beat(config))),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        fetch, check = BatchFetch(self.config), RangeCheck(self.config)
        m.submodules.fetch = ResetInserter(self.restart)(fetch)
        m.submodules.check = check
        connect(m, fetch=fetch.command, command=flipped(self.command))
        connect(m, fetch=fetch.ids, ids=flipped(self.ids))
        connect(m, fetch=fetch.lengths, lengths=flipped(self.lengths))
        connect(m, fetch=fetch.verdict, verdict=flipped(self.verdict))
        if self.config.lanes < self.config.word_lanes:
            serializer = LaneSerializer(self.config)
            m.submodules.serializer = ResetInserter(self.restart)(serializer)
            connect(m, fetch=fetch.lookups, serializer=serializer.words)
            connect(m, serializer=serializer.beats, check=check.unchecked)
        else:
            connect(m, fetch=fetch.lookups, check=check.unchecked)
        connect(m, check=check.beats, beats=flipped(self.beats))
        connect(m, check=check.table_update, table_update=flipped(self.table_update))
        m.d.comb += [check.restart.eq(self.restart), self.ready.eq(check.ready)]
        return m
