"""Batch route: the beats of a batch to the units that it is for."""

from amaranth import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .layouts import lookup_beat


def batch_kind() -> data.StructLayout:
    """What a batch is for: to be counted, to be split, or both."""
    return data.StructLayout({"counts": 1, "splits": 1})


class BatchRoute(wiring.Component):
    """Send each beat to the counters, to the splitter, or to both in one pass.

    Parameters
    ----------
    config : Config

    Members
    -------
    kinds : In(stream(batch_kind()))
        One per batch, in order.
    beats : In(stream(lookup_beat(config)))
    counted, split : Out(stream(lookup_beat(config)))
        Their `ready` must not depend on `valid`: a beat for both leaves to both at once.

    Timing
    ------
    Combinational; a batch's beats wait for its kind.
    """

    def __init__(self, config: Config):
        beats = stream.Signature(lookup_beat(config))
        super().__init__({
            "kinds": In(stream.Signature(batch_kind())),
            "beats": In(beats),
            "counted": Out(beats),
            "split": Out(beats),
        })

    def elaborate(self, platform):
        m = Module()
        kind, beat = self.kinds, self.beats
        counts, splits = kind.p.counts, kind.p.splits
        valid = beat.valid & kind.valid
        m.d.comb += [
            self.counted.p.eq(beat.p),
            self.split.p.eq(beat.p),
            self.counted.valid.eq(valid & counts & (self.split.ready | ~splits)),
            self.split.valid.eq(valid & splits & (self.counted.ready | ~counts)),
            beat.ready.eq(kind.valid & (self.counted.ready | ~counts)
                          & (self.split.ready | ~splits)),
            kind.ready.eq(valid & beat.ready & beat.p.last),
        ]
        return m
