"""Sums of bags of rows, in fp32."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import ArithmeticUnits
from .multiply_add import MultiplyAddPort
from .partial_sums import PartialSums
from .payloads import MAX_PARTIALS, PARTIALS_BYTES, bag_beat, bag_row, row_format
from .reorder import SumReorder, sum_tag
from .tree_sum import TreeSum
from .width_converter import WordsToBeats


class BagSum(wiring.Component):
    """The weighted sum of each bag's rows, in fp32, in an order that no bus width changes.

    Row j of a bag goes to partial sum j mod p. Each partial sum starts at +0 and adds its rows in
    order: fma(weight, row, partial). p is 1024 / r rounded up to a power of two, at least 1 and at
    most 16, where r is the size of the row as fp32 in bytes. Beats that are added to each other
    are therefore at least 16 cycles apart and never wait for the adder. `TreeSum` then adds the
    partial sums in pairs; partial sums without a row are left out. An empty bag gives +0. Rows of
    1024 bytes or more, and bags of one or two rows of any size, are summed in list order.

    Parameters
    ----------
    config : ArithmeticUnits

    Attributes
    ----------
    row_format : In(row_format)
        Of all rows. Set three cycles before the first row and stable while rows are inside.
    rows : In(stream(bag_row))
        The rows of each bag in order, and the empty bags. A bag has fewer than 2**24 rows.
    words : In(stream(config.bus_width))
        The words of each row that is not `empty`, in order.
    multiply_add, accepts
        See `PartialSums`.
    bags : Out(stream(bag_beat(config)))
        The sum of every bag in order.

    Timing
    ------
    See ``hotrow_sim.cycles.arithmetic``. A bag of n rows of b beats takes n * b cycles, or
    b * s(m) for m = min(n, p) partial sums if that is more, where s is the adder time of `TreeSum`.
    """

    def __init__(self, config: ArithmeticUnits):
        self.config = config
        super().__init__({
            "row_format": In(row_format),
            "rows": In(stream.Signature(bag_row)),
            "words": In(stream.Signature(config.bus_width)),
            "multiply_add": Out(MultiplyAddPort(config)),
            "accepts": Out(1),
            "bags": Out(stream.Signature(bag_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.beats = beats = WordsToBeats(config)
        m.submodules.partials = partials = PartialSums(config)
        m.submodules.reorder = reorder = SumReorder(config)
        m.submodules.tree = tree = TreeSum(
            config.lanes, MAX_PARTIALS, PARTIALS_BYTES // config.bus_bytes, sum_tag(config))
        m.d.comb += [
            beats.row_format.eq(self.row_format),
            partials.row_format.eq(self.row_format),
            self.accepts.eq(partials.accepts),
        ]
        connect(m, partials.multiply_add, flipped(self.multiply_add))
        connect(m, words=flipped(self.words), beats=beats.words)
        connect(m, rows=flipped(self.rows), partials=partials.rows)
        connect(m, beats=beats.beats, partials=partials.beats)
        connect(m, partials=partials.partials, reorder=reorder.partials)
        connect(m, reorder=reorder.bags, bags=flipped(self.bags))
        m.d.comb += [
            tree.summands.valid.eq(reorder.tagged.valid),
            tree.summands.p.values.eq(reorder.tagged.p.values),
            tree.summands.p.index.eq(reorder.tagged.p.index),
            tree.summands.p.final.eq(reorder.tagged.p.final),
            tree.summands.p.beat_idx.eq(reorder.tagged.p.beat_idx),
            tree.summands.p.tag.eq(reorder.tag),
            reorder.tagged.ready.eq(tree.summands.ready),
        ]
        connect(m, tree=tree.sums, reorder=reorder.sums)
        return m
