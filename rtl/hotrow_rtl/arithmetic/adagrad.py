"""The scalar operations of row-wise Adagrad.

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

    Attributes
    ----------
    operands : In(stream(a, b))
    results : Out(stream(32))

    Timing
    ------
    `latency` cycles; `operands` is ready in the cycle after the result's handshake.
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
    """s' = s + sum / elements and f = lr / (sqrt(s') + eps): five operations, each rounded.

    Attributes
    ----------
    blocks : In(10)
        Elements of a row divided by 4, 1 to 512. `blocks`, `lr` and `eps` are set a cycle before
        the first row and stable while rows are inside.
    lr, eps : In(32)
        fp32.
    sums : In(stream(32))
        Sum of squares of each row's gradient.
    states : In(stream(32))
        Accumulator s of each row, fp32.
    updated : Out(stream(32))
        Accumulator s' of each row.
    factors : Out(stream(32))
        The factor f for each row's gradient.

    Timing
    ------
    Two divisions, a root and two additions in series; rows overlap. One row per
    ``Divide.latency + 1`` cycles.
    """

    def __init__(self):
        number = stream.Signature(32)
        super().__init__({
            "blocks": In(10),
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
        m.submodules.states_out = states_out = RamFifo(32, 2)  # lets the next row start early
        m.submodules.root = root = SquareRoot()
        m.submodules.add_eps = add_eps = SingleAdd()
        m.submodules.divide_lr = divide_lr = Divide()
        m.submodules.factors_out = factors_out = RamFifo(32, 2)
        elements = Signal(32)  # as fp32
        for bit in range(len(self.blocks)):
            with m.If(self.blocks[bit]):
                m.d.sync += elements.eq(Cat((self.blocks << 23 - bit)[:23],
                                            Const(FP32.bias + 2 + bit, 8)))
        m.d.comb += [
            mean.operands.valid.eq(self.sums.valid),
            mean.operands.p.a.eq(self.sums.p),
            mean.operands.p.b.eq(elements),
            self.sums.ready.eq(mean.operands.ready),
            accumulate.operands.valid.eq(mean.results.valid & self.states.valid),
            accumulate.operands.p.a.eq(mean.results.p),
            accumulate.operands.p.b.eq(self.states.p),
            mean.results.ready.eq(accumulate.operands.ready & self.states.valid),
            self.states.ready.eq(accumulate.operands.ready & mean.results.valid),
        ]
        fork(m, accumulate.results, states_out.i, root.operands)
        m.d.comb += [
            states_out.i.p.eq(accumulate.results.p),
            root.operands.p.a.eq(accumulate.results.p),
            add_eps.operands.valid.eq(root.results.valid),
            add_eps.operands.p.a.eq(root.results.p),
            add_eps.operands.p.b.eq(self.eps),
            root.results.ready.eq(add_eps.operands.ready),
            divide_lr.operands.valid.eq(add_eps.results.valid),
            divide_lr.operands.p.a.eq(self.lr),
            divide_lr.operands.p.b.eq(add_eps.results.p),
            add_eps.results.ready.eq(divide_lr.operands.ready),
        ]
        connect(m, states_out=states_out.o, updated=flipped(self.updated))
        connect(m, divide_lr=divide_lr.results, factors_out=factors_out.i)
        connect(m, factors_out=factors_out.o, factors=flipped(self.factors))
        return m
