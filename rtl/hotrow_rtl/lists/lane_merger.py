"""Lane turns: elements that were dealt to lanes, one after another again."""

from amaranth import Module, Mux, Signal
from amaranth.hdl import Shape
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..primitives.stream_routing import stream_connect


class LaneMerger(wiring.Component):
    """Take element i from lane i mod `lanes`, as a `LaneUnpacker` dealt them.

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
        with m.Switch(turn):
            for number, lane in enumerate(self.elements):
                with m.Case(number):
                    stream_connect(m, lane, out)
        with m.If(self.clear):
            m.d.sync += turn.eq(0)
        with m.Elif(out.valid & out.ready):
            m.d.sync += turn.eq(Mux(turn == len(self.elements) - 1, 0, turn + 1))
        return m
