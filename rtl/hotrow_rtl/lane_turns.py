"""Lane turns: elements that were dealt to lanes, one after another again."""

from functools import reduce
from operator import or_

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Shape
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class LaneTurns(wiring.Component):
    """Take element i from lane i mod `lanes`, as a `Dealer` dealt them.

    Parameters
    ----------
    shape : ShapeCastable
    lanes : int

    Members
    -------
    elements : In(stream(bits of shape)).array(lanes)
    clear : In(1)
        The next element is from lane 0.
    ordered : Out(stream(bits of shape))

    Timing
    ------
    No latency, one element a cycle.
    """

    def __init__(self, shape, lanes):
        bits = stream.Signature(Shape.cast(shape).width)
        super().__init__({
            "elements": In(bits).array(lanes), "clear": In(1), "ordered": Out(bits)})

    def elaborate(self, platform):
        m = Module()
        turn, out = Signal(range(max(2, len(self.elements)))), self.ordered
        mine = [turn == number for number in range(len(self.elements))]
        m.d.comb += [
            out.valid.eq(Cat(lane.valid & at for lane, at in zip(self.elements, mine)).any()),
            out.p.eq(reduce(or_, (lane.p & at.replicate(len(out.p))
                                  for lane, at in zip(self.elements, mine)))),
            *(lane.ready.eq(out.ready & at) for lane, at in zip(self.elements, mine)),
        ]
        with m.If(self.clear):
            m.d.sync += turn.eq(0)
        with m.Elif(out.valid & out.ready):
            m.d.sync += turn.eq(Mux(turn == len(self.elements) - 1, 0, turn + 1))
        return m
