"""RowUpdate: one step of SGD or of row-wise Adagrad on every row."""

import itertools

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import ArithmeticUnits
from ..float.convert import Widen
from ..float.fma import FusedMultiplyAdd
from ..float.formats import ElementType
from ..primitives.fifo import RamFifo
from .adagrad import AdagradStep
from .multiply_add import MultiplyAddPort
from .payloads import max_row_beats, row_beat, row_format, row_geometry
from .square_sum import SquareSum
from .width_converter import WordsToBeats

SIGN = 1 << 31
APPLY_LATENCY = 1 + Widen.latency + FusedMultiplyAdd.latency  # from operand beats to result beat


class Optimizer(enum.Enum, shape=1):
    """How a gradient changes a row."""

    SGD = 0
    ROWWISE_ADAGRAD = 1


class RowUpdate(wiring.Component):
    """Update rows of fp32, fp16 or bf16 by fp32 gradients, in fp32.

    SGD: w = fma(-lr, g, w). Row-wise Adagrad, with one fp32 state s per row: s = s + q / D,
    w = fma(-(lr / (sqrt(s) + eps)), g, w), where D is the number of elements and q the sum of
    g * g by `SquareSum`. Each operation rounds to nearest even.

    Parameters
    ----------
    config : ArithmeticUnits

    Attributes
    ----------
    row_format : In(row_format)
        Of all rows. `row_format`, `optimizer`, `lr` and `eps` are set three cycles before the
        first row and stable while rows are inside.
    optimizer : In(Optimizer)
    lr, eps : In(32)
        fp32. SGD ignores eps.
    gradients : In(stream(row_beat(config)))
        The summed gradient of each row, as many beats as the row has.
    words : In(stream(config.bus_width))
        The rows. Each row begins at the first byte of a word.
    states : In(stream(32))
        The state of each row. SGD takes none.
    space_for_one, reserve : In(1), Out(1)
        See `BeatsToWords`, the receiver of `updated`.
    hold : In(1)
        Begin no beat in this cycle.
    multiply_add : Out(MultiplyAddPort(config))
        Used as many cycles after a beat begins as `PartialSums` uses its own.
    updated : Out(stream(row_beat(config), always_ready=True))
        The fp32 beats of the rows after the step.
    updated_states : Out(stream(32))
        The states after the step. SGD returns none.

    Timing
    ------
    See ``hotrow_sim.cycles.arithmetic``. SGD: one beat per cycle. Adagrad: a row of s steps of
    `SquareSum` takes s cycles, those of `TreeSum` for s rows of a beat, or the 30 of `AdagradStep`,
    whichever is most. The buffers hold two of the longest rows, so that consecutive rows overlap.
    """

    def __init__(self, config: ArithmeticUnits):
        self.config = config
        super().__init__({
            "row_format": In(row_format),
            "optimizer": In(Optimizer),
            "lr": In(32),
            "eps": In(32),
            "gradients": In(stream.Signature(row_beat(config))),
            "words": In(stream.Signature(config.bus_width)),
            "states": In(stream.Signature(32)),
            "space_for_one": In(1),
            "reserve": Out(1),
            "hold": In(1),
            "multiply_add": Out(MultiplyAddPort(config)),
            "updated": Out(stream.Signature(row_beat(config), always_ready=True)),
            "updated_states": Out(stream.Signature(32)),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        geometry = row_geometry(m, config, self.row_format)
        m.submodules.gradients = gradients = RamFifo(row_beat(config), 2 * max_row_beats(config))
        m.submodules.row_words = row_words = RamFifo(config.bus_width, max_row_beats(config))
        m.submodules.weights = weights = WordsToBeats(config)
        m.submodules.squares = squares = SquareSum(config)
        m.submodules.step = step = AdagradStep()
        adagrad = Signal()
        m.d.sync += adagrad.eq(self.optimizer == Optimizer.ROWWISE_ADAGRAD)
        m.d.comb += [
            weights.row_format.eq(self.row_format),
            squares.row_format.eq(self.row_format),
            step.blocks.eq(geometry.blocks),
            step.lr.eq(self.lr),
            step.eps.eq(self.eps),
        ]
        connect(m, words=flipped(self.words), row_words=row_words.i)
        connect(m, row_words=row_words.o, weights=weights.words)
        connect(m, squares=squares.sums, step=step.sums)
        connect(m, states=flipped(self.states), step=step.states)
        connect(m, step=step.updated, states=flipped(self.updated_states))
        # A gradient waits in `gradients` for the factor that depends on its squares.
        m.submodules.to_squares = to_squares = RamFifo(row_beat(config), 2)
        connect(m, to_squares=to_squares.o, squares=squares.beats)
        squares_ready = to_squares.i.ready | ~adagrad
        m.d.comb += [
            gradients.i.p.eq(self.gradients.p),
            to_squares.i.p.eq(self.gradients.p),
            gradients.i.valid.eq(self.gradients.valid & squares_ready),
            to_squares.i.valid.eq(self.gradients.valid & gradients.i.ready & adagrad),
            self.gradients.ready.eq(gradients.i.ready & squares_ready),
        ]

        fire = self.reserve
        m.d.comb += [
            fire.eq(gradients.o.valid & weights.beats.valid & self.space_for_one & ~self.hold
                    & (step.factors.valid | ~adagrad)),
            gradients.o.ready.eq(fire),
            weights.beats.ready.eq(fire),
            step.factors.ready.eq(fire & gradients.o.p.last & adagrad),
        ]
        valid, last = Signal(APPLY_LATENCY), Signal(APPLY_LATENCY)
        raw, factor = Signal(config.bus_width, reset_less=True), Signal(32, reset_less=True)
        gradient = [Signal(config.bus_width, name=f"gradient{cycle}", reset_less=True)
                    for cycle in range(1 + Widen.latency)]
        factors = [factor, *(Signal(32, name=f"factor{cycle}", reset_less=True)
                             for cycle in range(Widen.latency))]
        type_ = Signal(ElementType)
        m.d.sync += [
            type_.eq(self.row_format.type),
            valid.eq(Cat(fire, valid)),
            last.eq(Cat(gradients.o.p.last, last)),
            raw.eq(weights.beats.p.values),
            factor.eq(Mux(adagrad, step.factors.p, self.lr) ^ SIGN),
            *(register.eq(value) for value, register in itertools.pairwise(
                [gradients.o.p.values, *gradient])),
            *(register.eq(value) for value, register in itertools.pairwise(factors)),
        ]
        apply = self.multiply_add
        for lane in range(config.lanes):
            m.submodules[f"widen{lane}"] = widen = Widen()
            m.d.comb += [
                widen.operands.valid.eq(valid[0]),
                widen.operands.p.value.eq(raw.word_select(lane, 32)),
                widen.operands.p.type.eq(type_),
                apply.operands.valid.eq(widen.results.valid),
                apply.operands.p.addends.word_select(lane, 32).eq(widen.results.p),
            ]
        m.d.comb += [
            apply.operands.p.factor.eq(factors[-1]),
            apply.operands.p.values.eq(gradient[-1]),
            self.updated.valid.eq(valid[-1]),
            self.updated.p.values.eq(apply.results),
            self.updated.p.last.eq(last[-1]),
        ]
        return m
