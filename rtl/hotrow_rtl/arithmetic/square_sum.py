"""Sum of squares of each row."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import LARGEST_ROW, Config, log2
from ..float.add import Add
from ..float.fma import FusedMultiplyAdd
from ..primitives.fifo import RamFifo
from .payloads import row_beat, row_geometry, row_setting
from .tree_sum import MINUS_ZERO, TreeSum

STEPS = 4  # cycles for a beat: a step takes the elements of a quarter of the lanes
QUEUE = 32  # steps that have room on their way to the adder
ROWS = 8  # that are summed or wait to be taken


class SquareSum(wiring.Component):
    """The sum of g * g over the elements g of a row, in fp32.

    Each square is rounded. Those of elements 0 and 1, 2 and 3, ... are added, then so the sums,
    until one is left; a last one without a neighbour goes to the next round as it is.

    Parameters
    ----------
    config : Config

    Members
    -------
    setting : In(row_setting)
        Of all rows, of which the elements count; set two cycles before the first, stable while
        any is inside.
    beats : In(stream(row_beat(config)))
        Elements in fp32.
    sums : Out(stream(32))
        One of each row.

    Timing
    ------
    A cycle a step of lanes / 4 elements, four steps a beat. The sum of a row of s steps comes about
    s + 10 * log2(s) + 10 * log2(lanes / 4) + 20 cycles after its first beat.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "setting": In(row_setting),
            "beats": In(stream.Signature(row_beat(config))),
            "sums": Out(stream.Signature(32)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.config.lanes
        width = lanes // STEPS
        geometry = row_geometry(m, self.config, self.setting)
        steps = range(2 * LARGEST_ROW // 4 // width)  # of a row
        last_step = Signal(steps)
        m.d.sync += last_step.eq((geometry.blocks << log2(16) >> log2(lanes)) - 1)

        # A quarter of a beat is squared in each cycle.
        at, part, inside, rows = (
            Signal(steps), Signal(range(STEPS)), Signal(range(QUEUE + 1)), Signal(range(ROWS + 1)))
        free, step, row_ends = Signal(), Signal(), Signal()
        m.d.comb += [
            step.eq(self.beats.valid & free),
            row_ends.eq(step & (at == last_step)),
            self.beats.ready.eq(free & ((part == STEPS - 1) | (at == last_step))),
        ]
        with m.If(step):
            m.d.sync += [at.eq(Mux(row_ends, 0, at + 1)), part.eq(Mux(row_ends, 0, part + 1))]
        chosen = self.beats.p.values.word_select(part, 32 * width)
        given, valid = Signal(32 * width, reset_less=True), Signal()
        m.d.sync += [given.eq(chosen), valid.eq(step)]
        level = []
        for lane in range(width):
            m.submodules[f"square{lane}"] = square = FusedMultiplyAdd()
            value = given.word_select(lane, 32)
            m.d.comb += [
                square.operands.valid.eq(valid),
                square.operands.p.a.eq(value),
                square.operands.p.b.eq(value),
                square.operands.p.c.eq(MINUS_ZERO),
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

        # The sums of the steps are added to one of the row.
        m.submodules.queue = queue = RamFifo(32, QUEUE)
        m.submodules.pairs = pairs = TreeSum(1, len(steps), 1, 1)
        m.submodules.made = made = RamFifo(32, ROWS)
        index = Signal(steps)
        m.d.comb += [
            queue.i.valid.eq(level[0].valid),
            queue.i.p.eq(level[0].p),
            pairs.summands.valid.eq(queue.o.valid),
            pairs.summands.p.values.eq(queue.o.p),
            pairs.summands.p.index.eq(index),
            pairs.summands.p.final.eq(index == last_step),
            queue.o.ready.eq(pairs.summands.ready),
            made.i.valid.eq(pairs.sums.valid),
            made.i.p.eq(pairs.sums.p.values),
        ]
        with m.If(queue.o.valid & queue.o.ready):
            m.d.sync += index.eq(Mux(index == last_step, 0, index + 1))
        connect(m, made=made.o, sums=flipped(self.sums))

        # What has been begun has room. As the counts lag behind, two steps or rows more may come.
        left, taken, began = Signal(), Signal(), Signal()
        m.d.sync += [
            left.eq(queue.o.valid & queue.o.ready),
            taken.eq(self.sums.valid & self.sums.ready),
            began.eq(row_ends),
            inside.eq(inside + step - left),
            rows.eq(rows + began - taken),
            free.eq((inside < QUEUE - 3) & (rows < ROWS - 4)),
        ]
        return m
