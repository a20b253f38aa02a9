"""Lookup reader: the ids of a batch, each with its table, sample and the verdict of its table."""

from amaranth import Module, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...interfaces.records import ReadClient, command, lookup_beat, table_update
from .batch_fetch import BatchFetch, verdict
from .range_check import RangeCheck

__all__ = ["LookupReader", "verdict"]


class LookupReader(wiring.Component):
    """Turn batch commands into beats of lookups.

    Parameters
    ----------
    config : Config

    Members
    -------
    command : In(stream(command))
        A batch that passed the checks of the queue, with byte addresses.
    table_update : In(table_update(config))
        Table descriptors as the host registers them.
    ids, lengths : Out(ReadClient(config))
    verdict : Out(stream(verdict))
        One per command, in order, before its first beat. OK: beats follow. Otherwise the command
        is refused for the sum of its lengths (LOOKUPS, `error_index` the sum) or a bus fault
        while they were read, and has no beats.
    beats : Out(stream(lookup_beat(config)))
        The lookups in the order of the ids in memory; `last` on the one with the final id.
    restart : In(1)
        A pulse drops the command in progress; the table descriptors stay.
    ready : Out(1)
        High once the table descriptors are cleared after reset.

    Timing
    ------
    A beat is one whole bus word; one leaves in every cycle in which `ids` delivers a word and
    `beats` is taken, 3 cycles after its word, except where more bags than its lanes go into a
    word of ids: then half a bus word of lengths a cycle. A jagged batch's ids are requested when
    the sum of its lengths is known, `LengthSum`'s pass after the command.

    One batch is prefetched: a command is taken, its lists are requested and its verdict is given
    while the batch before it is delivered. Batches of more words than the memory's latency follow
    each other without a gap if the list port buffers as many words as the latency has cycles.
    Lengths of more than `config.stored_lengths` bags are read twice; the sum of the batch behind
    then waits for the end of the second reading.
    """

    latency = RangeCheck.latency

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
        walk, check = BatchFetch(self.config), RangeCheck(self.config)
        m.submodules.walk = ResetInserter(self.restart)(walk)
        m.submodules.check = check
        connect(m, walk=walk.command, command=flipped(self.command))
        connect(m, walk=walk.ids, ids=flipped(self.ids))
        connect(m, walk=walk.lengths, lengths=flipped(self.lengths))
        connect(m, walk=walk.verdict, verdict=flipped(self.verdict))
        connect(m, walk=walk.lookups, check=check.unchecked)
        connect(m, check=check.beats, beats=flipped(self.beats))
        connect(m, check=check.table_update, table_update=flipped(self.table_update))
        m.d.comb += [check.restart.eq(self.restart), self.ready.eq(check.ready)]
        return m
