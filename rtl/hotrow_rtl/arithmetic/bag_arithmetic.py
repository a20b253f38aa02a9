"""BagArithmetic: the sums of POOL, and the steps of UPDATE by its sums."""

from amaranth import Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import ArithmeticUnits
from .multiply_add import BeatMultiplyAdd
from .optimizer import Optimizer, RowUpdate
from .payloads import bag_row, row_format, row_word
from .pooling import RowPool
from .width_converter import BeatsToWords


class BagArithmetic(wiring.Component):
    """A `RowPool`, a `RowUpdate`, the units that both use, and the packing of their rows.

    Parameters
    ----------
    config : ArithmeticUnits

    Attributes
    ----------
    summand_format, row_format : In(row_format)
        Of the summed rows, and of the updated ones. The settings, these and the next, are set three
        cycles before the first row and stable while rows are inside.
    mean : In(1)
        Results are means, see `RowPool`; not with `updates`.
    updates : In(1)
        The sums update rows, else they are the results.
    optimizer, lr, eps : In
        See `RowUpdate`.
    rows : In(stream(bag_row))
    words : In(stream(config.bus_width))
        The bags and the words of their rows, see `RowPool`.
    row_words, states : In(stream)
        The rows to update and their states, see `RowUpdate`.
    results : Out(stream(row_word(config)))
        Sums, means or updated rows. Bytes past the end of a row are undefined.
    updated_states : Out(stream(32))

    Timing
    ------
    See ``hotrow_sim.cycles.arithmetic``. With one lane a beat of a sum or of a step is processed
    per cycle, with several one of each, see `BeatMultiplyAdd`. A word of 16-bit elements takes two
    cycles, or one if its second half is past the end of the row.
    """

    def __init__(self, config: ArithmeticUnits):
        self.config = config
        words, number = stream.Signature(config.bus_width), stream.Signature(32)
        super().__init__({
            "summand_format": In(row_format),
            "row_format": In(row_format),
            "mean": In(1),
            "updates": In(1),
            "optimizer": In(Optimizer),
            "lr": In(32),
            "eps": In(32),
            "rows": In(stream.Signature(bag_row)),
            "words": In(words),
            "row_words": In(words),
            "states": In(number),
            "results": Out(stream.Signature(row_word(config))),
            "updated_states": Out(number),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.pool = pool = RowPool(self.config)
        m.submodules.update = update = RowUpdate(self.config)
        m.submodules.multiply_add = multiply_add = BeatMultiplyAdd(self.config)
        m.submodules.out = out = BeatsToWords(self.config)
        for number, unit in enumerate((pool, update)):
            connect(m, unit.multiply_add, multiply_add.clients[number])
        if self.config.lanes == 1:  # sums first: the words of a row follow those of its gradients
            m.d.comb += update.hold.eq(pool.accepts)
        connect(m, rows=flipped(self.rows), pool=pool.rows)
        connect(m, words=flipped(self.words), pool=pool.words)
        connect(m, pool=pool.gradients, update=update.gradients)
        connect(m, row_words=flipped(self.row_words), update=update.words)
        connect(m, states=flipped(self.states), update=update.states)
        connect(m, update=update.updated_states, states=flipped(self.updated_states))
        connect(m, out=out.words, results=flipped(self.results))
        m.d.comb += [
            pool.row_format.eq(self.summand_format),
            pool.mean.eq(self.mean),
            pool.updates.eq(self.updates),
            update.row_format.eq(self.row_format),
            update.optimizer.eq(self.optimizer),
            update.lr.eq(self.lr),
            update.eps.eq(self.eps),
            # Only one of the two has rows.
            pool.space_for_one.eq(out.space_for_one),
            update.space_for_one.eq(out.space_for_one),
            out.reserve.eq(pool.reserve | update.reserve),
        ]
        m.d.sync += [  # Timing: registers, as `Narrow` decodes exponents in its first stage
            out.type.eq(Mux(self.updates, self.row_format.type, self.summand_format.type)),
            out.beats.valid.eq(pool.pooled.valid | update.updated.valid),
            out.beats.p.eq(Mux(self.updates, update.updated.p, pool.pooled.p)),
        ]
        return m
