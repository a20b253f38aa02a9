"""Row pool: the sum or mean of each bag of rows, one row per bag."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config
from ..primitives.stream_routing import stream_connect
from .bag_sum import BagSum
from .mean import BagMean
from .payloads import pooled_row, row_beat, row_setting, row_word
from .width_converter import RowWords


class RowPool(wiring.Component):
    """Pool rows of fp32, fp16 or bf16 in fp32, in the order of addition of `BagSum`.

    A mean is the sum divided by the number of rows, a true division, left out for one row. The
    result is rounded once to the type of the rows. Sums and means are weighted by 1.0.

    Parameters
    ----------
    config : Config

    Members
    -------
    setting : In(row_setting)
        Of all rows; set three cycles before the first, stable while any is inside.
    mean, plain : In(1)
        Likewise. With `plain` sums, as of `BagSum`, leave as `gradients`.
    rows : In(stream(pooled_row(config)))
        The rows of each bag in order, and the empty bags. A bag has fewer than 2**24 rows.
    words : In(stream(config.bus_width))
        Those of each row that is not `empty`, in order.
    gradients : Out(stream(row_beat(config)))
    pooled : Out(stream(row_word(config)))
        The row of every bag in order. Where it has no elements its words hold what means nothing.

    Timing
    ------
    See ``hotrow_sim.cycles.arithmetic``. As `BagSum`; means of short bags as `BagMean`. Words of
    16-bit elements take two cycles, or one if their second half is beyond the row.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "setting": In(row_setting),
            "mean": In(1),
            "plain": In(1),
            "rows": In(stream.Signature(pooled_row(config))),
            "words": In(stream.Signature(config.bus_width)),
            "gradients": Out(stream.Signature(row_beat(config))),
            "pooled": Out(stream.Signature(row_word(config))),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.sums = sums = BagSum(self.config)
        m.submodules.means = means = BagMean(self.config)
        m.submodules.out = out = RowWords(self.config)
        connect(m, rows=flipped(self.rows), sums=sums.rows)
        connect(m, words=flipped(self.words), sums=sums.words)
        with m.If(self.plain):
            m.d.comb += [
                self.gradients.valid.eq(sums.bags.valid),
                sums.bags.ready.eq(self.gradients.ready),
            ]
        with m.Else():
            stream_connect(m, sums.bags, means.sums)
        connect(m, out=out.words, pooled=flipped(self.pooled))
        m.d.comb += [
            sums.setting.eq(self.setting),
            sums.plain.eq(self.plain),
            self.gradients.p.values.eq(sums.bags.p.values),
            self.gradients.p.last.eq(sums.bags.p.last),
            means.mean.eq(self.mean),
            out.type.eq(self.setting.type),
            means.bags.ready.eq(out.free),
            out.reserved.eq(means.bags.valid & out.free),
            out.beats.valid.eq(out.reserved),
            out.beats.p.eq(means.bags.p),
        ]
        return m
