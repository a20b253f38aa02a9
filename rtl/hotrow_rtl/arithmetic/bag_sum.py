"""Sums of bags of rows, in fp32."""

from amaranth import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config
from .partial_sums import PartialSums
from .payloads import MOST_PARTIALS, PARTIALS_BYTES, bag_beat, pooled_row, row_setting
from .reorder import SumReorder, sum_tag
from .tree_sum import TreeSum
from .width_converter import RowBeats


class BagSum(wiring.Component):
    """The weighted sum of each bag's rows, in fp32, in an order that no bus width changes.

    Row j of a bag goes to partial sum j mod p; each of them adds its rows in order, from +0, by
    fused multiply-add: fma(weight, row, partial). p is 1024 / r rounded up to a power of two, at
    least 1 and at most 16, where r is the bytes of the row as fp32. So an adder is not waited
    for: beats that are added to one another are at least 16 apart. At the end partial sums 0 and
    1, 2 and 3, ... are added, then so the sums, until one is left; those without a row are left
    out, one without a neighbour goes to the next round as it is. An empty bag gives +0. Rows of
    1024 bytes or more, and bags of one or two rows of any size, are summed in plain list order.

    With `plain` the sum of a bag is that of all its rows in list order, from its first, and of
    one row of weight 1 that row itself, bit for bit but for NaN: 0x7fc00000.

    Parameters
    ----------
    config : Config

    Members
    -------
    setting : In(row_setting)
        Of all rows; set three cycles before the first, stable while any is inside.
    plain : In(1)
        Likewise.
    rows : In(stream(pooled_row(config)))
        The rows of each bag in order, and the empty bags. A bag has fewer than 2**24 rows.
    words : In(stream(config.bus_width))
        Those of each row that is not `empty`, in order.
    bags : Out(stream(bag_beat(config)))
        The sum of every bag in order.

    Timing
    ------
    See ``hotrow_sim.cycles.arithmetic``. A bag of n rows of b beats takes n * b cycles, or b * s(m)
    for m = min(n, p) partial sums, see `TreeSum`, if those are more.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "setting": In(row_setting),
            "plain": In(1),
            "rows": In(stream.Signature(pooled_row(config))),
            "words": In(stream.Signature(config.bus_width)),
            "bags": Out(stream.Signature(bag_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.beats = beats = RowBeats(config)
        m.submodules.partials = partials = PartialSums(config)
        m.submodules.order = order = SumReorder(config)
        m.submodules.pairs = pairs = TreeSum(
            config.lanes, MOST_PARTIALS, PARTIALS_BYTES // config.bus_bytes, sum_tag(config).size)
        m.d.comb += [
            beats.setting.eq(self.setting),
            partials.setting.eq(self.setting),
            partials.plain.eq(self.plain),
        ]
        connect(m, words=flipped(self.words), beats=beats.words)
        connect(m, rows=flipped(self.rows), partials=partials.rows)
        connect(m, beats=beats.beats, partials=partials.beats)
        connect(m, partials=partials.partials, order=order.partials)
        m.d.comb += [
            pairs.summands.valid.eq(order.tagged.valid),
            pairs.summands.p.values.eq(order.tagged.p.values),
            pairs.summands.p.index.eq(order.tagged.p.index),
            pairs.summands.p.final.eq(order.tagged.p.final),
            pairs.summands.p.at.eq(order.tagged.p.at),
            pairs.summands.p.tag.eq(Cat(order.tag)),
            order.tagged.ready.eq(pairs.summands.ready),
        ]
        connect(m, pairs=pairs.sums, order=order.sums)
        connect(m, order=order.bags, bags=flipped(self.bags))
        return m
