"""EntryArbiter: entries of several transfers each, from several lanes to one stream."""

from collections.abc import Callable
from functools import reduce
from operator import or_

from amaranth import Cat, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .round_robin_arbiter import RoundRobinArbiter
from .skid_buffer import SkidBuffer


class EntryArbiter(wiring.Component):
    """Merge the entries of all lanes round robin, each entry with all its transfers.

    Parameters
    ----------
    shape : ShapeLike
        Of a transfer.
    count : int
        Number of lanes.
    last : callable
        Whether a transfer, a view of its shape, is the final one of its entry.

    Attributes
    ----------
    lanes : In(stream(shape)).array(count)
    transfers : Out(stream(shape))

    Timing
    ------
    Latency 1 cycle, throughput 1 transfer per cycle.
    """

    latency = 1

    def __init__(self, shape: ShapeLike, count: int, last: Callable[[data.View], Value]):
        self.shape, self.last = shape, last
        super().__init__({
            "lanes": In(stream.Signature(shape)).array(count),
            "transfers": Out(stream.Signature(shape)),
        })

    def elaborate(self, platform):
        m = Module()
        count, width = len(self.lanes), len(self.transfers.p.as_value())
        m.submodules.arbiter = arbiter = RoundRobinArbiter(count)
        m.submodules.skid = skid = SkidBuffer(self.shape)
        inside, owner, select = Signal(), Signal(count), Signal(count)
        valids, fire = Cat(lane.valid for lane in self.lanes), Signal()
        m.d.comb += [
            arbiter.requests.eq(valids),
            arbiter.accept.eq(fire & ~inside),
            select.eq(Mux(inside, owner, arbiter.grant)),
            skid.i.valid.eq((select & valids).any()),
            skid.i.p.eq(reduce(or_, (lane.p.as_value() & select[number].replicate(width)
                                     for number, lane in enumerate(self.lanes)))),
            fire.eq(skid.i.valid & skid.i.ready),
        ]
        connect(m, skid=skid.o, transfers=flipped(self.transfers))
        for number, lane in enumerate(self.lanes):
            m.d.comb += lane.ready.eq(skid.i.ready & select[number])
        with m.If(fire):
            m.d.sync += [inside.eq(~self.last(skid.i.p)), owner.eq(select)]
        return m
