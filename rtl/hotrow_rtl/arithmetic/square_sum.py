"""SquareSum: the sum of squares of each row."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import LARGEST_ROW, ArithmeticUnits, log2
from ..float.add import Add
from ..float.square import Square
from ..primitives.fifo import RamFifo
from .payloads import row_beat, row_format, row_geometry
from .tree_sum import TreeSum

QUEUE = 32  # steps between `beats` and the final adder
ROWS = 8  # rows between `beats` and `sums`


class SquareSum(wiring.Component):
    """The sum of g * g over the elements g of a row, in fp32.

    Each square is rounded. The squares are added in pairs: elements 0 and 1, 2 and 3, ...; then
    these sums in pairs, until one remains. A last sum without a neighbour passes unchanged.

    Parameters
    ----------
    config : ArithmeticUnits

    Attributes
    ----------
    row_format : In(row_format)
        Of all rows; sets the number of elements. Set two cycles before the first row and stable
        while rows are inside.
    beats : In(stream(row_beat(config)))
        fp32 elements.
    sums : Out(stream(32))
        One per row.

    Timing
    ------
    One step of `config.squares` elements per cycle. The sum of a row of s steps of e elements
    comes about s + 10 * log2(s) + 8 * log2(e) + 12 cycles after its first beat.
    """

    def __init__(self, config: ArithmeticUnits):
        self.config = config
        super().__init__({
            "row_format": In(row_format),
            "beats": In(stream.Signature(row_beat(config))),
            "sums": Out(stream.Signature(32)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.config.lanes
        width = self.config.squares  # elements of a step
        geometry = row_geometry(m, self.config, self.row_format)
        steps = range(2 * LARGEST_ROW // 4 // width)  # of the longest row
        last_step = Signal(steps)
        m.d.sync += last_step.eq((geometry.blocks << log2(4) >> log2(width)) - 1)

        # Each step squares `width` elements of a beat.
        step_idx, part = Signal(steps), Signal(range(lanes // width))
        step_count, row_count = Signal(range(QUEUE + 1)), Signal(range(ROWS + 1))
        space, step, row_end = Signal(), Signal(), Signal()
        m.d.comb += [
            step.eq(self.beats.valid & space),
            row_end.eq(step & (step_idx == last_step)),
            self.beats.ready.eq(space & ((part == lanes // width - 1) | (step_idx == last_step))),
        ]
        with m.If(step):
            m.d.sync += [step_idx.eq(Mux(row_end, 0, step_idx + 1)),
                         part.eq(Mux(row_end, 0, part + 1))]
        values, valid = Signal(32 * width, reset_less=True), Signal()
        m.d.sync += [
            values.eq(self.beats.p.values.word_select(part, 32 * width)), valid.eq(step)]
        level = []
        for lane in range(width):
            m.submodules[f"square{lane}"] = square = Square()
            m.d.comb += [
                square.operands.valid.eq(valid),
                square.operands.p.a.eq(values.word_select(lane, 32)),
            ]
            level.append(square.results)
        while len(level) > 1:
            sums = []
            for pair in range(len(level) // 2):
                m.submodules[f"add{len(level) // 2}_{pair}"] = add = Add()
                m.d.comb += [
                    add.operands.valid.eq(level[0].valid),
                    add.operands.p.a.eq(level[2 * pair].p),
                    add.operands.p.b.eq(level[2 * pair + 1].p),
                ]
                sums.append(add.results)
            level = sums

        # Add the sums of a row's steps.
        m.submodules.queue = queue = RamFifo(32, QUEUE)
        m.submodules.tree = tree = TreeSum(1, len(steps), 1, 0)
        m.submodules.sums_out = sums_out = RamFifo(32, ROWS)
        index = Signal(steps)
        m.d.comb += [
            queue.i.valid.eq(level[0].valid),
            queue.i.p.eq(level[0].p),
            tree.summands.valid.eq(queue.o.valid),
            tree.summands.p.values.eq(queue.o.p),
            tree.summands.p.index.eq(index),
            tree.summands.p.final.eq(index == last_step),
            queue.o.ready.eq(tree.summands.ready),
            sums_out.i.valid.eq(tree.sums.valid),
            sums_out.i.p.eq(tree.sums.p.values),
        ]
        with m.If(queue.o.valid & queue.o.ready):
            m.d.sync += index.eq(Mux(index == last_step, 0, index + 1))
        connect(m, sums_out=sums_out.o, sums=flipped(self.sums))

        # Nothing can stall after `step`, so steps and rows are admitted only with space in `queue`
        # and `sums_out`. The limits cover the two cycles until `space` reflects a step or a row.
        queue_fire, sum_fire, row_end_q = Signal(), Signal(), Signal()
        m.d.sync += [
            queue_fire.eq(queue.o.valid & queue.o.ready),
            sum_fire.eq(self.sums.valid & self.sums.ready),
            row_end_q.eq(row_end),
            step_count.eq(step_count + step - queue_fire),
            row_count.eq(row_count + row_end_q - sum_fire),
            space.eq((step_count < QUEUE - 3) & (row_count < ROWS - 4)),
        ]
        return m
