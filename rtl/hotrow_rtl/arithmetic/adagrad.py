"""The scalar operations of row-wise Adagrad.

Source: J. Duchi, E. Hazan and Y. Singer, Adaptive subgradient methods, J. Mach. Learn. Res. 12
(2011), with one accumulator per row.
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..float.add import Add
from ..float.divide import Divide
from ..float.formats import FP32
from ..float.sqrt import SquareRoot
from ..primitives.fifo import RamFifo
from ..primitives.stream_routing import fork


class SharedAdd(wiring.Component):
    """a + b in fp32 for two clients by one adder, one addition at a time for each.

    Attributes
    ----------
    operands : In(stream(a, b)).array(2)
    results : Out(stream(32)).array(2)

    Timing
    ------
    ``Add.latency + 1`` cycles, one more if both clients add in the same cycle. `operands` is ready
    in the cycle after the result's handshake.
    """

    def __init__(self):
        super().__init__({
            "operands": In(stream.Signature(Add.layout)).array(2),
            "results": Out(stream.Signature(32)).array(2),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.add = add = Add()
        busy, fire, owner = Signal(2), Signal(2), Signal(Add.latency)
        first, second = self.operands
        m.d.comb += [
            first.ready.eq(~busy[0] & ~fire[1]),
            second.ready.eq(~busy[1]),
            fire.eq(Cat(each.valid & each.ready for each in self.operands)),
            add.operands.valid.eq(fire.any()),
            add.operands.p.eq(Mux(fire[1], second.p, first.p)),
        ]
        m.d.sync += [owner.eq(Cat(fire[1], owner)), busy.eq(busy | fire)]
        for number, results in enumerate(self.results):
            with m.If(add.results.valid & (owner[-1] == number)):
                m.d.sync += [results.valid.eq(1), results.p.eq(add.results.p)]
            with m.If(results.valid & results.ready):
                m.d.sync += [results.valid.eq(0), busy[number].eq(0)]
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
        m.submodules.adds = adds = SharedAdd()
        m.submodules.states_out = states_out = RamFifo(32, 2)  # lets the next row start early
        m.submodules.root = root = SquareRoot()
        m.submodules.divide_lr = divide_lr = Divide()
        m.submodules.factors_out = factors_out = RamFifo(32, 2)
        (accumulate, add_eps), (accumulated, added_eps) = adds.operands, adds.results
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
            accumulate.valid.eq(mean.results.valid & self.states.valid),
            accumulate.p.a.eq(mean.results.p),
            accumulate.p.b.eq(self.states.p),
            mean.results.ready.eq(accumulate.ready & self.states.valid),
            self.states.ready.eq(accumulate.ready & mean.results.valid),
        ]
        fork(m, accumulated, states_out.i, root.operands)
        m.d.comb += [
            states_out.i.p.eq(accumulated.p),
            root.operands.p.a.eq(accumulated.p),
            add_eps.valid.eq(root.results.valid),
            add_eps.p.a.eq(root.results.p),
            add_eps.p.b.eq(self.eps),
            root.results.ready.eq(add_eps.ready),
            divide_lr.operands.valid.eq(added_eps.valid),
            divide_lr.operands.p.a.eq(self.lr),
            divide_lr.operands.p.b.eq(added_eps.p),
            added_eps.ready.eq(divide_lr.operands.ready),
        ]
        connect(m, states_out=states_out.o, updated=flipped(self.updated))
        connect(m, divide_lr=divide_lr.results, factors_out=factors_out.i)
        connect(m, factors_out=factors_out.o, factors=flipped(self.factors))
        return m
