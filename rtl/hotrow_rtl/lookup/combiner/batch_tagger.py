"""Batch tagger: adds the operations of a batch to its beats."""

from amaranth import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import EPOCH_WIDTH, Config
from ...interfaces.lookup_payloads import tagged_beat
from ...interfaces.records import lookup_beat


def batch_kind() -> data.StructLayout:
    """Operations of a batch: to be counted, to be split, or both; and its epoch in the miss
    table."""
    return data.StructLayout({"counts": 1, "splits": 1, "epoch": EPOCH_WIDTH})


class BatchTagger(wiring.Component):
    """Add the kind of each batch to its beats.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    kinds : In(stream(batch_kind()))
        One per batch, in order.
    beats : In(stream(lookup_beat(config)))
    tagged : Out(stream(tagged_beat(config)))

    Timing
    ------
    Combinational. The beats of a batch stall until its kind is valid.
    """

    def __init__(self, config: Config):
        super().__init__({
            "kinds": In(stream.Signature(batch_kind())),
            "beats": In(stream.Signature(lookup_beat(config))),
            "tagged": Out(stream.Signature(tagged_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        kind, beat, out = self.kinds, self.beats, self.tagged
        m.d.comb += [
            out.valid.eq(kind.valid & beat.valid),
            out.p.beat.eq(beat.p),
            out.p.counts.eq(kind.p.counts),
            out.p.splits.eq(kind.p.splits),
            out.p.epoch.eq(kind.p.epoch),
            beat.ready.eq(out.ready & kind.valid),
            kind.ready.eq(out.valid & out.ready & beat.p.last),
        ]
        return m
