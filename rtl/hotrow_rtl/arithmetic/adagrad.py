"""The scalars of row-wise Adagrad.

Source: J. Duchi, E. Hazan and Y. Singer, Adaptive subgradient methods, J. Mach. Learn. Res. 12
(2011), with one accumulator per row.
"""

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..float.add import Add
from ..float.divide import Divide
from ..float.formats import FP32
from ..float.sqrt import SquareRoot
from ..primitives.fifo import RamFifo
from ..primitives.stream_routing import fork


class SingleAdd(wiring.Component):
    """a + b in fp32, one addition at a time.

    Members
    -------
    operands : In(stream(a, b))
    results : Out(stream(32))

    Timing
    ------
    `latency` cycles; the next operands are taken in the cycle after the result.
    """

    latency = Add.latency + 1

    def __init__(self):
        super().__init__({
            "operands": In(stream.Signature(Add.layout)),
            "results": Out(stream.Signature(32)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.add = add = Add()
        busy = Signal()
        m.d.comb += [
            self.operands.ready.eq(~busy),
            add.operands.valid.eq(self.operands.valid & ~busy),
            add.operands.p.eq(self.operands.p),
        ]
        with m.If(self.operands.valid & ~busy):
            m.d.sync += busy.eq(1)
        with m.If(add.results.valid):
            m.d.sync += [self.results.valid.eq(1), self.results.p.eq(add.results.p)]
        with m.If(self.results.valid & self.results.ready):
            m.d.sync += [self.results.valid.eq(0), busy.eq(0)]
        return m


class AdagradStep(wiring.Component):
    """state + sum / elements, and lr / (sqrt(of that) + eps): five operations, each rounded.

    Members
    -------
    elements : In(10)
        Of a row, divided by 4: 1 to 512. Set a cycle before the first row, as `lr` and `eps`, and
        stable while any is inside.
    lr, eps : In(32)
        fp32.
    sums : In(stream(32))
        Of the squares of each row.
    states : In(stream(32))
        The accumulator of each row, fp32.
    updated : Out(stream(32))
        The accumulators after the step.
    factors : Out(stream(32))
        What each gradient is multiplied by.

    Timing
    ------
    Two divisions, a root and two additions follow one another for a row, and overlap with those of
    other rows: a row in ``Divide.latency + 1`` cycles.
    """

    def __init__(self):
        number = stream.Signature(32)
        super().__init__({
            "elements": In(10),
            "lr": In(32),
            "eps": In(32),
            "sums": In(number),
            "states": In(number),
            "updated": Out(number),
            "factors": Out(number),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.mean = mean = Divide()
        m.submodules.accumulate = accumulate = SingleAdd()
        m.submodules.kept = kept = RamFifo(32, 2)  # until it is written, the next begins
        m.submodules.root = root = SquareRoot()
        m.submodules.bound = bound = SingleAdd()
        m.submodules.scale = scale = Divide()
        m.submodules.scaled = scaled = RamFifo(32, 2)
        count = Signal(32)  # the elements as fp32
        for bit in range(len(self.elements)):
            with m.If(self.elements[bit]):
                m.d.sync += count.eq(Cat((self.elements << 23 - bit)[:23],
                                         Const(FP32.bias + 2 + bit, 8)))
        m.d.comb += [
            mean.operands.valid.eq(self.sums.valid),
            mean.operands.p.a.eq(self.sums.p),
            mean.operands.p.b.eq(count),
            self.sums.ready.eq(mean.operands.ready),
            accumulate.operands.valid.eq(mean.results.valid & self.states.valid),
            accumulate.operands.p.a.eq(mean.results.p),
            accumulate.operands.p.b.eq(self.states.p),
            mean.results.ready.eq(accumulate.operands.ready & self.states.valid),
            self.states.ready.eq(accumulate.operands.ready & mean.results.valid),
        ]
        fork(m, accumulate.results, kept.i, root.operands)
        m.d.comb += [
            kept.i.p.eq(accumulate.results.p),
            root.operands.p.a.eq(accumulate.results.p),
            bound.operands.valid.eq(root.results.valid),
            bound.operands.p.a.eq(root.results.p),
            bound.operands.p.b.eq(self.eps),
            root.results.ready.eq(bound.operands.ready),
            scale.operands.valid.eq(bound.results.valid),
            scale.operands.p.a.eq(self.lr),
            scale.operands.p.b.eq(bound.results.p),
            bound.results.ready.eq(scale.operands.ready),
        ]
        connect(m, kept=kept.o, updated=flipped(self.updated))
        connect(m, scale=scale.results, scaled=scaled.i)
        connect(m, scaled=scaled.o, factors=flipped(self.factors))
        return m
