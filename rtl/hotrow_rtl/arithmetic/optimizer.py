"""Row update: one step of SGD or of row-wise Adagrad on every row."""

import itertools

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config
from ..float.convert import Widen
from ..float.fma import FusedMultiplyAdd
from ..float.formats import ElementType
from ..primitives.fifo import RamFifo
from .adagrad import AdagradStep
from .payloads import beats_of_longest, row_beat, row_geometry, row_setting, row_word
from .square_sum import SquareSum
from .width_converter import RowBeats, RowWords

SIGN = 1 << 31
APPLIED = 1 + Widen.latency + FusedMultiplyAdd.latency  # cycles from two beats to theirs


class Optimizer(enum.Enum, shape=1):
    """How a gradient changes a row."""

    SGD = 0
    ROWWISE_ADAGRAD = 1


class RowUpdate(wiring.Component):
    """Update rows of fp32, fp16 or bf16 by gradients in fp32; round once to the type of the rows.

    SGD: w = fma(-lr, g, w). Row-wise Adagrad, with a state s of one fp32 per row: s = s + q / D,
    w = fma(-(lr / (sqrt(s) + eps)), g, w), where D is the number of elements and q the sum of
    g * g by `SquareSum`. Each operation is rounded to nearest even.

    Parameters
    ----------
    config : Config

    Members
    -------
    setting : In(row_setting)
        Of all rows; set three cycles before the first, as the settings that follow, and stable
        while any is inside.
    optimizer : In(Optimizer)
    lr, eps : In(32)
        fp32; SGD does not use eps.
    gradients : In(stream(row_beat(config)))
        Of each row, summed: the `bags` of `BagSum` with `plain`, as many beats.
    words : In(stream(config.bus_width))
        The rows, each in bus words of its own.
    states : In(stream(32))
        With Adagrad of each row; else none is taken.
    updated : Out(stream(row_word(config)))
        The rows after the step. Where a row has no elements its words hold what means nothing.
    updated_states : Out(stream(32))
        The states after the step, with Adagrad.

    Timing
    ------
    See ``hotrow_sim.cycles.arithmetic``. SGD: a beat a cycle. Adagrad: a row of b beats in
    max(4 * b, 31) cycles, or up to 35 if b is about 8: a quarter of the lanes is squared at a
    time, four rows are on their way, and one divider makes the factors. Two of the longest rows
    have room, so that the steps of a row overlap with those of others.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "setting": In(row_setting),
            "optimizer": In(Optimizer),
            "lr": In(32),
            "eps": In(32),
            "gradients": In(stream.Signature(row_beat(config))),
            "words": In(stream.Signature(config.bus_width)),
            "states": In(stream.Signature(32)),
            "updated": Out(stream.Signature(row_word(config))),
            "updated_states": Out(stream.Signature(32)),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        geometry = row_geometry(m, config, self.setting)
        m.submodules.queue = queue = RamFifo(row_beat(config), 2 * beats_of_longest(config))
        m.submodules.waiting = waiting = RamFifo(
            config.bus_width, beats_of_longest(config))
        m.submodules.weights = weights = RowBeats(config)
        m.submodules.squares = squares = SquareSum(config)
        m.submodules.step = step = AdagradStep()
        m.submodules.out = out = RowWords(config)
        adagrad = Signal()
        m.d.sync += adagrad.eq(self.optimizer == Optimizer.ROWWISE_ADAGRAD)
        m.d.comb += [
            weights.setting.eq(self.setting),
            squares.setting.eq(self.setting),
            step.elements.eq(geometry.blocks),
            step.lr.eq(self.lr),
            step.eps.eq(self.eps),
            out.type.eq(self.setting.type),
        ]
        connect(m, words=flipped(self.words), waiting=waiting.i)
        connect(m, waiting=waiting.o, weights=weights.words)
        connect(m, squares=squares.sums, step=step.sums)
        connect(m, states=flipped(self.states), step=step.states)
        connect(m, step=step.updated, states=flipped(self.updated_states))
        connect(m, out=out.words, updated=flipped(self.updated))
        # Gradients wait for the factor that comes of their squares.
        m.submodules.passing = passing = RamFifo(row_beat(config), 2)
        connect(m, passing=passing.o, squares=squares.beats)
        ready = passing.i.ready | ~adagrad
        m.d.comb += [
            queue.i.p.eq(self.gradients.p),
            passing.i.p.eq(self.gradients.p),
            queue.i.valid.eq(self.gradients.valid & ready),
            passing.i.valid.eq(self.gradients.valid & queue.i.ready & adagrad),
            self.gradients.ready.eq(queue.i.ready & ready),
        ]

        accept = out.reserved
        m.d.comb += [
            accept.eq(queue.o.valid & weights.beats.valid & out.free
                      & (step.factors.valid | ~adagrad)),
            queue.o.ready.eq(accept),
            weights.beats.ready.eq(accept),
            step.factors.ready.eq(accept & queue.o.p.last & adagrad),
        ]
        valid, last = Signal(APPLIED), Signal(APPLIED)
        raw, factor = Signal(config.bus_width, reset_less=True), Signal(32, reset_less=True)
        gradient = [Signal(config.bus_width, name=f"gradient{cycle}", reset_less=True)
                    for cycle in range(1 + Widen.latency)]
        factors = [factor, *(Signal(32, name=f"factor{cycle}", reset_less=True)
                             for cycle in range(Widen.latency))]
        type_ = Signal(ElementType)
        m.d.sync += [
            type_.eq(self.setting.type),
            valid.eq(Cat(accept, valid)),
            last.eq(Cat(queue.o.p.last, last)),
            raw.eq(weights.beats.p.values),
            factor.eq(Mux(adagrad, step.factors.p, self.lr) ^ SIGN),
            *(register.eq(value)
              for value, register in zip([queue.o.p.values, *gradient], gradient)),
            *(register.eq(value) for value, register in itertools.pairwise(factors)),
        ]
        results = []
        for lane in range(config.lanes):
            m.submodules[f"widen{lane}"] = widen = Widen()
            m.submodules[f"apply{lane}"] = apply = FusedMultiplyAdd()
            m.d.comb += [
                widen.operands.valid.eq(valid[0]),
                widen.operands.p.value.eq(raw.word_select(lane, 32)),
                widen.operands.p.type.eq(type_),
                apply.operands.valid.eq(widen.results.valid),
                apply.operands.p.a.eq(factors[-1]),
                apply.operands.p.b.eq(gradient[-1].word_select(lane, 32)),
                apply.operands.p.c.eq(widen.results.p),
            ]
            results.append(apply.results.p)
        m.d.comb += [
            out.beats.valid.eq(valid[-1]),
            out.beats.p.values.eq(Cat(results)),
            out.beats.p.last.eq(last[-1]),
        ]
        return m
