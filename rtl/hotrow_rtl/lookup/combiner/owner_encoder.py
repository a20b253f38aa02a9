"""Joined place: in which beat and lane the lookup is that another one joins."""

from functools import reduce
from operator import or_

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...primitives.bits import onehot_to_index


class OwnerEncoder(wiring.Component):
    """Encode the one lookup joined.

    Parameters
    ----------
    config : Config

    Members
    -------
    joins : In((config.window_beats + 1) * config.lanes)
        One bit at most: of its own beat lowest, then of the beat before, and so on.
    any : Out(1)
    back, lane : Out
        The beats back to it, and its lane there; 0 if there is none.

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
        by_back = [self.joins.word_select(back, lanes)
                   for back in range(self.config.window_beats + 1)]
        in_lanes = Signal(lanes)
        m.d.comb += [self.any.eq(self.joins.any()), in_lanes.eq(reduce(or_, by_back))]
        m.d.comb += [self.back.eq(onehot_to_index([each.any() for each in by_back])),
                     self.lane.eq(onehot_to_index(in_lanes))]
        return m
