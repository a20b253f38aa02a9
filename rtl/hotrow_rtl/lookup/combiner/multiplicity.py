"""Beat amounts: for how many lookups each lane of a beat stands, with those that join it."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...primitives.bits import popcount


class LaneAmount(wiring.Component):
    """Add the number of lookups that join a lane.

    Parameters
    ----------
    lanes, width : int
        Lookups that may join, bits of an amount.

    Members
    -------
    joined : In(lanes)
    before, after : In(width), Out(width)

    Timing
    ------
    Combinational.
    """

    def __init__(self, lanes: int, width: int):
        super().__init__({"joined": In(lanes), "before": In(width), "after": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.after.eq(self.before + popcount(self.joined))
        return m


class Multiplicity(wiring.Component):
    """Add to the amount of each lane of a beat how many lookups of another beat join it.

    Parameters
    ----------
    lanes, width : int
        Of a beat, and bits of an amount.

    Members
    -------
    joined : In(lanes * lanes)
        Of each lookup that may join, the first lowest, the lane that it does.
    before, after : In(lanes * width), Out(lanes * width)
        Amounts by lane.

    Timing
    ------
    Combinational.
    """

    def __init__(self, lanes: int, width: int):
        self.lanes, self.width = lanes, width
        super().__init__({
            "joined": In(lanes * lanes),
            "before": In(lanes * width),
            "after": Out(lanes * width),
        })

    def elaborate(self, platform):
        m = Module()
        for lane in range(self.lanes):
            m.submodules[f"lane{lane}"] = each = LaneAmount(self.lanes, self.width)
            m.d.comb += [
                [each.joined[other].eq(self.joined[other * self.lanes + lane])
                 for other in range(self.lanes)],
                each.before.eq(self.before.word_select(lane, self.width)),
                self.after.word_select(lane, self.width).eq(each.after),
            ]
        return m
