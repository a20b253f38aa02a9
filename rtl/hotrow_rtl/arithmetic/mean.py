"""Means of bags from their sums."""

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..float.divide import Divide
from ..float.from_integer import IntegerToFloat
from .payloads import bag_beat, row_beat


class BagMean(wiring.Component):
    """Divide the sums of bags of two rows or more by the number of their rows, a true division.

    Parameters
    ----------
    config : Config

    Members
    -------
    mean : In(1)
        If low, sums pass as they are. Stable while any is inside.
    sums : In(stream(bag_beat(config)))
    bags : Out(stream(row_beat(config)))

    Timing
    ------
    A beat that passes: latency 1 cycle, one beat a cycle. One that is divided takes
    ``Divide.latency + 2`` cycles, the first of a bag of n rows floor(log2(n)) + 2 more: a divider
    per lane divides the lanes of one beat at a time. A bag of b beats is as fast as its sum if it
    has about 32 rows or more.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "mean": In(1),
            "sums": In(stream.Signature(bag_beat(config))),
            "bags": Out(stream.Signature(row_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, given, out = self.config.lanes, self.sums, self.bags
        m.submodules.convert = convert = IntegerToFloat()
        rows, known = Signal(32, reset_less=True), Signal()  # of this bag, as fp32
        ask = Signal()
        m.d.comb += [
            convert.operands.p.eq(given.p.rows),
            convert.results.ready.eq(1),
        ]
        results, done = [], []
        taken = Signal()  # the results have been
        for lane in range(lanes):
            m.submodules[f"divide{lane}"] = divide = Divide()
            m.d.comb += [
                divide.operands.valid.eq(ask),
                divide.operands.p.a.eq(given.p.values.word_select(lane, 32)),
                divide.operands.p.b.eq(rows),
                divide.results.ready.eq(taken),
            ]
            results.append(divide.results.p)
            done.append(divide.results.valid)
        all_done, free = Signal(), Signal()
        m.d.sync += all_done.eq(Cat(done).all() & ~taken)
        m.d.comb += free.eq(~out.valid | out.ready)

        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.FSM(name="step"):
            with m.State("pass"):
                with m.If(self.mean & (given.p.rows[1:] != 0)):
                    with m.If(given.valid):
                        with m.If(known):
                            m.d.comb += ask.eq(1)
                            m.next = "divide"
                        with m.Else():
                            m.d.comb += convert.operands.valid.eq(1)
                            m.next = "convert"
                with m.Elif(given.valid & free):
                    m.d.comb += given.ready.eq(1)
                    m.d.sync += [
                        out.valid.eq(1),
                        out.p.values.eq(given.p.values),
                        out.p.last.eq(given.p.last),
                    ]
            with m.State("convert"):
                m.d.sync += rows.eq(convert.results.p)
                with m.If(convert.results.valid):
                    m.d.sync += known.eq(1)
                    m.next = "pass"
            with m.State("divide"):
                with m.If(all_done & free):
                    m.d.comb += [given.ready.eq(1), taken.eq(1)]
                    m.d.sync += [
                        out.valid.eq(1),
                        out.p.values.eq(Cat(results)),
                        out.p.last.eq(given.p.last),
                    ]
                    with m.If(given.p.last):
                        m.d.sync += known.eq(0)
                    m.next = "pass"
        return m
