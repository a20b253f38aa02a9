"""Joined place: in which beat and lane the lookup is that another one joins."""

from functools import reduce
from operator import or_

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .config import Config


class JoinedPlace(wiring.Component):
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
        _encode(m, self.back, [each.any() for each in by_back])
        _encode(m, self.lane, in_lanes)
        return m


def _encode(m, number, bits):
    """Make `number` that of the bit that is set, 0 if none is."""
    m.d.comb += [number[place].eq(Cat(bit for at, bit in enumerate(bits) if at >> place & 1).any())
                 for place in range(len(number))]
