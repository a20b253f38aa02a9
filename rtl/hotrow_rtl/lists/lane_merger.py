"""Merges the elements that a `LaneUnpacker` distributed to lanes, in their order."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..primitives.stream_routing import stream_connect


class LaneMerger(wiring.Component):
    """Return element i from lane i mod `lanes`.

    Parameters
    ----------
    shape : ShapeCastable
    lanes : int

    Attributes
    ----------
    elements : In(stream(shape)).array(lanes)
    clear : In(1)
        The next element comes from lane 0.
    merged : Out(stream(shape))

    Timing
    ------
    No latency, one element a cycle.
    """

    def __init__(self, shape, lanes):
        super().__init__({
            "elements": In(stream.Signature(shape)).array(lanes),
            "clear": In(1),
            "merged": Out(stream.Signature(shape)),
        })

    def elaborate(self, platform):
        m = Module()
        lane_idx, out = Signal(range(max(2, len(self.elements)))), self.merged
        with m.Switch(lane_idx):
            for idx, lane in enumerate(self.elements):
                with m.Case(idx):
                    stream_connect(m, lane, out)
        with m.If(self.clear):
            m.d.sync += lane_idx.eq(0)
        with m.Elif(out.valid & out.ready):
            m.d.sync += lane_idx.eq(Mux(lane_idx == len(self.elements) - 1, 0, lane_idx + 1))
        return m
