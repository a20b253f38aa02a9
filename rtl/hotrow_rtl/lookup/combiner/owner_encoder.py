"""Owner encoder: the beat and lane of the owner that a lookup joins."""

from functools import reduce
from operator import or_

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...primitives.bits import onehot_to_index


class OwnerEncoder(wiring.Component):
    """Encode the position of an owner.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    joins : In((config.window_beats + 1) * config.lanes)
        At most one bit is set: lanes of the lookup's own beat lowest, then of the beat before, and
        so on.
    any : Out(1)
        A bit is set.
    back, lane : Out
        Beats back to the owner, and its lane; 0 if no bit is set.

    Timing
    ------
    Combinational.
    """

    def __init__(self, config: Config):
        self.config = config
        beats = config.window_beats + 1
        super().__init__({
            "joins": In(beats * config.lanes),
            "any": Out(1),
            "back": Out(range(beats)),
            "lane": Out(range(config.lanes)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.config.lanes
        by_beat = [self.joins.word_select(back, lanes)
                   for back in range(self.config.window_beats + 1)]
        by_lane = Signal(lanes)
        m.d.comb += [self.any.eq(self.joins.any()), by_lane.eq(reduce(or_, by_beat))]
        m.d.comb += [self.back.eq(onehot_to_index([each.any() for each in by_beat])),
                     self.lane.eq(onehot_to_index(by_lane))]
        return m
