"""The arithmetic of rows by itself: bags of rows pooled, and rows updated by their gradients."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..arithmetic.bag_arithmetic import BagArithmetic
from ..arithmetic.multiply_add import BeatMultiplyAdd
from ..arithmetic.optimizer import Optimizer
from ..arithmetic.payloads import bag_row, row_format, row_word
from ..arithmetic.pooling import RowPool
from ..arithmetic.width_converter import BeatsToWords
from ..config import Config


class RowPooling(wiring.Component):
    """Sum, or average, the rows of each bag.

    Rows are of fp32, fp16 or bf16; sums are in fp32, in an order that depends on the row size
    alone, and are rounded once at the end.

    Parameters
    ----------
    config : Config
        With arithmetic; a word has 32 bits for each of its `arithmetic_lanes`.

    Attributes
    ----------
    row_format : In(row_format)
        Of all rows. It and `mean` are set three cycles before the first row and stable while rows
        are inside.
    mean : In(1)
        Results are means, else sums.
    rows : In(stream(bag_row))
        The rows of each bag in order, each with its fp32 weight (1.0 for a mean), and the empty
        bags.
    words : In(stream(32 * arithmetic_lanes))
        The words of each row that is not `empty`; a row begins with a word.
    results : Out(stream(row_word))
        A row for each bag. Bytes past its end are undefined.

    Timing
    ------
    See ``hotrow_sim.cycles.arithmetic``.
    """

    def __init__(self, config: Config):
        self.config = config
        units = config.units
        super().__init__({
            "row_format": In(row_format),
            "mean": In(1),
            "rows": In(stream.Signature(bag_row)),
            "words": In(stream.Signature(units.bus_width)),
            "results": Out(stream.Signature(row_word(units))),
        })

    def elaborate(self, platform):
        m = Module()
        units = self.config.units
        m.submodules.pool = pool = RowPool(units)
        m.submodules.multiply_add = multiply_add = BeatMultiplyAdd(units, clients=1)
        m.submodules.out = out = BeatsToWords(units)
        connect(m, pool.multiply_add, multiply_add.clients[0])
        connect(m, rows=flipped(self.rows), pool=pool.rows)
        connect(m, words=flipped(self.words), pool=pool.words)
        connect(m, out=out.words, results=flipped(self.results))
        m.d.comb += [
            pool.row_format.eq(self.row_format),
            pool.mean.eq(self.mean),
            pool.space_for_one.eq(out.space_for_one),
            out.reserve.eq(pool.reserve),
        ]
        m.d.sync += [  # Timing: registers, as `Narrow` decodes exponents in its first stage
            out.type.eq(self.row_format.type),
            out.beats.valid.eq(pool.pooled.valid),
            out.beats.p.eq(pool.pooled.p),
        ]
        return m


class RowSteps(wiring.Component):
    """Update rows by the sums of their gradients: a step of SGD or of row-wise Adagrad.

    Rows and gradients are of fp32, fp16 or bf16, each of a type of its own; the arithmetic is in
    fp32. See `RowUpdate` for the formulas.

    Parameters
    ----------
    config : Config
        With arithmetic; a word has 32 bits for each of its `arithmetic_lanes`.

    Attributes
    ----------
    gradient_format, row_format : In(row_format)
        Of all gradients, and of all rows. These and the next are set three cycles before the first
        gradient and stable while rows are inside.
    optimizer : In(Optimizer)
    lr, eps : In(32)
        fp32. SGD ignores eps.
    gradients : In(stream(bag_row))
        The gradients of each row in order, each with weight 1.0; every row has at least one.
    gradient_words : In(stream(32 * arithmetic_lanes))
        The words of each gradient, which begins with a word.
    words : In(stream(32 * arithmetic_lanes))
        The words of each row.
    states : In(stream(32))
        The fp32 state of each row. SGD takes none.
    results : Out(stream(row_word))
        The rows after the step. Bytes past the end of a row are undefined.
    updated_states : Out(stream(32))
        The states after the step. SGD returns none.

    Timing
    ------
    See ``hotrow_sim.cycles.arithmetic``.
    """

    def __init__(self, config: Config):
        self.config = config
        units = config.units
        words, numbers = stream.Signature(units.bus_width), stream.Signature(32)
        super().__init__({
            "gradient_format": In(row_format),
            "row_format": In(row_format),
            "optimizer": In(Optimizer),
            "lr": In(32),
            "eps": In(32),
            "gradients": In(stream.Signature(bag_row)),
            "gradient_words": In(words),
            "words": In(words),
            "states": In(numbers),
            "results": Out(stream.Signature(row_word(units))),
            "updated_states": Out(numbers),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.arithmetic = inner = BagArithmetic(self.config.units)
        m.d.comb += [
            inner.summand_format.eq(self.gradient_format),
            inner.row_format.eq(self.row_format),
            inner.updates.eq(1),
            inner.optimizer.eq(self.optimizer),
            inner.lr.eq(self.lr),
            inner.eps.eq(self.eps),
        ]
        for outer, own in ((self.gradients, inner.rows), (self.gradient_words, inner.words),
                           (self.words, inner.row_words), (self.states, inner.states)):
            connect(m, outer=flipped(outer), inner=own)
        connect(m, inner=inner.results, outer=flipped(self.results))
        connect(m, inner=inner.updated_states, outer=flipped(self.updated_states))
        return m
