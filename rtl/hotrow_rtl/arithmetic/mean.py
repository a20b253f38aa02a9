"""Means of bags from their sums."""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import ArithmeticUnits
from ..float.divide import Divide
from ..float.from_integer import IntegerToFloat
from .payloads import bag_beat, row_beat


class BagMean(wiring.Component):
    """Divide the sum of a bag by its number of rows: a true division, skipped for one row or none.

    Parameters
    ----------
    config : ArithmeticUnits

    Attributes
    ----------
    mean : In(1)
        If low, sums pass unchanged. Stable while beats are inside.
    sums : In(stream(bag_beat(config)))
    bags : Out(stream(row_beat(config)))

    Timing
    ------
    A beat that passes: latency 1 cycle, one beat per cycle. A beat that is divided takes
    ``Divide.latency + 2`` cycles; the first beat of a bag of n rows takes floor(log2(n)) + 2 more.
    The dividers, one per lane, process one beat at a time. A bag of b beats is as fast as its sum
    if it has about 32 rows or more.
    """

    def __init__(self, config: ArithmeticUnits):
        self.config = config
        super().__init__({
            "mean": In(1),
            "sums": In(stream.Signature(bag_beat(config))),
            "bags": Out(stream.Signature(row_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, sums, out = self.config.lanes, self.sums, self.bags
        m.submodules.convert = convert = IntegerToFloat()
        rows, rows_valid = Signal(32, reset_less=True), Signal()  # of this bag, as fp32
        start = Signal()
        m.d.comb += [
            convert.operands.p.eq(sums.p.rows),
            convert.results.ready.eq(1),
        ]
        quotients, valids = [], []
        quotients_ready = Signal()
        for lane in range(lanes):
            m.submodules[f"divide{lane}"] = divide = Divide()
            m.d.comb += [
                divide.operands.valid.eq(start),
                divide.operands.p.a.eq(sums.p.values.word_select(lane, 32)),
                divide.operands.p.b.eq(rows),
                divide.results.ready.eq(quotients_ready),
            ]
            quotients.append(divide.results.p)
            valids.append(divide.results.valid)
        all_valid, out_ready = Signal(), Signal()
        m.d.sync += all_valid.eq(Cat(valids).all() & ~quotients_ready)
        m.d.comb += out_ready.eq(~out.valid | out.ready)

        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.FSM(name="step"):
            with m.State("pass"):
                with m.If(self.mean & sums.p.several), m.If(sums.valid):
                    with m.If(rows_valid):
                        m.d.comb += start.eq(1)
                        m.next = "divide"
                    with m.Else():
                        m.d.comb += convert.operands.valid.eq(1)
                        m.next = "convert"
                with m.Elif(out_ready):
                    m.d.comb += sums.ready.eq(1)
                    m.d.sync += [
                        out.valid.eq(sums.valid),
                        out.p.values.eq(sums.p.values),
                        out.p.last.eq(sums.p.last),
                    ]
            with m.State("convert"):
                m.d.sync += rows.eq(convert.results.p)
                with m.If(convert.results.valid):
                    m.d.sync += rows_valid.eq(1)
                    m.next = "pass"
            with m.State("divide"), m.If(all_valid & out_ready):
                m.d.comb += [sums.ready.eq(1), quotients_ready.eq(1)]
                m.d.sync += [
                    out.valid.eq(1),
                    out.p.values.eq(Cat(quotients)),
                    out.p.last.eq(sums.p.last),
                ]
                with m.If(sums.p.last):
                    m.d.sync += rows_valid.eq(0)
                m.next = "pass"
        return m
