"""RowPool: the sum or mean of each bag of rows, one row per bag."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import ArithmeticUnits
from .bag_sum import BagSum
from .mean import BagMean
from .multiply_add import MultiplyAddPort
from .payloads import bag_row, row_beat, row_format


class RowPool(wiring.Component):
    """Pool rows of fp32, fp16 or bf16 in fp32, in the order of addition of `BagSum`.

    A mean is the sum divided by the number of rows (see `BagMean`). Unweighted sums and means have
    rows of weight 1.0.

    Parameters
    ----------
    config : ArithmeticUnits

    Attributes
    ----------
    row_format : In(row_format)
        Of all rows. Set three cycles before the first row and stable while rows are inside.
    mean, updates : In(1)
        Likewise. With `updates` the sums leave as `gradients`.
    rows : In(stream(bag_row))
        The rows of each bag in order, and the empty bags. A bag has fewer than 2**24 rows.
    words : In(stream(config.bus_width))
        The words of each row that is not `empty`, in order.
    multiply_add, accepts
        See `BagSum`.
    gradients : Out(stream(row_beat(config)))
    space_for_one, reserve : In(1), Out(1)
        See `BeatsToWords`, the receiver of `pooled`.
    pooled : Out(stream(row_beat(config), always_ready=True))
        The fp32 beats of every bag's row in order.

    Timing
    ------
    See ``hotrow_sim.cycles.arithmetic``. Sums as `BagSum`, means of short bags as `BagMean`.
    """

    def __init__(self, config: ArithmeticUnits):
        self.config = config
        super().__init__({
            "row_format": In(row_format),
            "mean": In(1),
            "updates": In(1),
            "rows": In(stream.Signature(bag_row)),
            "words": In(stream.Signature(config.bus_width)),
            "multiply_add": Out(MultiplyAddPort(config)),
            "accepts": Out(1),
            "gradients": Out(stream.Signature(row_beat(config))),
            "space_for_one": In(1),
            "reserve": Out(1),
            "pooled": Out(stream.Signature(row_beat(config), always_ready=True)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.sums = sums = BagSum(self.config)
        m.submodules.means = means = BagMean(self.config)
        connect(m, rows=flipped(self.rows), sums=sums.rows)
        connect(m, words=flipped(self.words), sums=sums.words)
        connect(m, sums.multiply_add, flipped(self.multiply_add))
        with m.If(self.updates):
            m.d.comb += [
                self.gradients.valid.eq(sums.bags.valid),
                sums.bags.ready.eq(self.gradients.ready),
            ]
        with m.Else():
            m.d.comb += [
                means.sums.valid.eq(sums.bags.valid),
                sums.bags.ready.eq(means.sums.ready),
            ]
        m.d.comb += [
            means.sums.p.eq(sums.bags.p),
            sums.row_format.eq(self.row_format),
            self.accepts.eq(sums.accepts),
            self.gradients.p.values.eq(sums.bags.p.values),
            self.gradients.p.last.eq(sums.bags.p.last),
            means.mean.eq(self.mean),
            means.bags.ready.eq(self.space_for_one),
            self.reserve.eq(means.bags.valid & self.space_for_one),
            self.pooled.valid.eq(self.reserve),
            self.pooled.p.eq(means.bags.p),
        ]
        return m
