"""Elements of rows as fp32, and back.

Source: IEEE 754-2019, section 5.4.2.
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..primitives.pipeline_stage import stage
from .formats import BF16, FP16, FP32, ElementType, unpack

typed = data.StructLayout({"value": 32, "type": ElementType})  # halves in the low 16 bits
CUT = FP32.fraction_bits - FP16.fraction_bits  # fraction bits that fp16 lacks
REBIAS = FP32.bias - FP16.bias
MOST_MORE = FP16.fraction_bits + 1  # a number with one more is less than half of the least of fp16


class Widen(wiring.Component):
    """An element of a row as fp32, exactly.

    fp32 passes bit for bit; a NaN of another type becomes 0x7fc00000.

    Members
    -------
    operands : In(stream(typed, always_ready=True))
        The bits above an element of 16 are ignored.
    results : Out(stream(32, always_ready=True))
        One for each operand, in order.

    Timing
    ------
    Always `latency` cycles; one operation a cycle. Nothing waits.
    """

    latency = 2
    layout = typed

    def __init__(self):
        super().__init__({
            "operands": In(stream.Signature(typed, always_ready=True)),
            "results": Out(stream.Signature(32, always_ready=True)),
        })

    def elaborate(self, platform):
        m = Module()
        valid = Signal(self.latency)
        m.d.sync += valid.eq(Cat(self.operands.valid, valid))
        m.d.comb += self.results.valid.eq(valid[-1])

        given = self.operands.p
        half = unpack(m, FP16, given.value[:FP16.width], "half")
        brain = unpack(m, BF16, given.value[:BF16.width], "brain")
        zeros = Signal(range(FP16.fraction_bits + 2))  # that lead the significand
        for at, bit in enumerate(half.significand):
            with m.If(bit):
                m.d.comb += zeros.eq(FP16.fraction_bits - at)
        read = stage(
            m, "read", value=given.value, type=given.type, zeros=zeros,
            significand=half.significand, exponent=half.exponent, zero=half.zero,
            infinity=half.infinity, half_nan=half.nan, brain_nan=brain.nan)

        fraction, exponent = Signal(FP16.fraction_bits), Signal(FP32.exponent_bits)
        m.d.comb += [
            fraction.eq(read.significand << read.zeros),
            exponent.eq(Mux(read.infinity, FP32.infinity >> FP32.fraction_bits,
                            Mux(read.zero, 0, read.exponent + REBIAS - read.zeros))),
        ]
        with m.Switch(read.type):
            with m.Case(ElementType.FP16):
                m.d.sync += self.results.p.eq(Mux(
                    read.half_nan, FP32.quiet_nan,
                    Cat(Const(0, CUT), fraction, exponent, read.value[FP16.width - 1])))
            with m.Case(ElementType.BF16):
                m.d.sync += self.results.p.eq(Mux(
                    read.brain_nan, FP32.quiet_nan, Cat(Const(0, 16), read.value[:BF16.width])))
            with m.Default():
                m.d.sync += self.results.p.eq(read.value)
        return m


class Narrow(wiring.Component):
    """fp32 as an element of a row, rounded to nearest, ties to even.

    fp32 passes bit for bit; a NaN becomes 0x7e00 in fp16 and 0x7fc0 in bf16.

    Members
    -------
    operands : In(stream(typed, always_ready=True))
        fp32, and the type to become.
    results : Out(stream(32, always_ready=True))
        One for each operand, in order; zeros above an element of 16 bits.

    Timing
    ------
    Always `latency` cycles; one operation a cycle. Nothing waits.
    """

    latency = 4
    layout = typed

    def __init__(self):
        super().__init__({
            "operands": In(stream.Signature(typed, always_ready=True)),
            "results": Out(stream.Signature(32, always_ready=True)),
        })

    def elaborate(self, platform):
        m = Module()
        valid = Signal(self.latency)
        m.d.sync += valid.eq(Cat(self.operands.valid, valid))
        m.d.comb += self.results.valid.eq(valid[-1])

        given = self.operands.p
        number = unpack(m, FP32, given.value, "number")
        read = stage(
            m, "read", value=given.value, type=given.type, significand=number.significand,
            exponent=number.exponent - REBIAS,  # in fp16
            nan=number.nan & (given.type != ElementType.FP32))

        # Subnormal numbers of fp16 lose one bit more for each binade, at last all of them.
        subnormal = read.exponent < 1
        more = Mux(read.exponent < -MOST_MORE, MOST_MORE + 1, 1 - read.exponent)[:4]
        placed = stage(
            m, "placed", value=read.value, type=read.type, significand=read.significand,
            exponent=Mux(subnormal, 0, read.exponent)[:FP16.exponent_bits],
            more=Mux(subnormal, more, 0), nan=read.nan,
            infinity=(read.type == ElementType.FP16) & (read.exponent >= 31))

        kept, half, below = Signal(31), Signal(), Signal()
        with m.Switch(placed.type):
            with m.Case(ElementType.FP16):
                bits = placed.significand[CUT - 1:] >> placed.more
                dropped = Cat(bit & (placed.more >= at - CUT + 2)
                              for at, bit in enumerate(placed.significand[:CUT + MOST_MORE]))
                m.d.comb += [
                    # Without its leading bit, which is there unless the exponent is 0.
                    kept.eq(Cat(bits[1:FP16.fraction_bits + 1], placed.exponent)),
                    half.eq(bits[0]),
                    below.eq(dropped.any()),
                ]
            with m.Case(ElementType.BF16):
                low = FP32.width - BF16.width
                m.d.comb += [
                    kept.eq(placed.value[low:-1]),
                    half.eq(placed.value[low - 1]),
                    below.eq(placed.value[:low - 1].any()),
                ]
            with m.Default():
                m.d.comb += kept.eq(placed.value[:-1])
        cut = stage(m, "cut", kept=kept, half=half, below=below, type=placed.type,
                    nan=placed.nan, infinity=placed.infinity, sign=placed.value[-1])

        rounded = Signal(31)
        m.d.comb += rounded.eq(cut.kept + (cut.half & (cut.below | cut.kept[0])))
        with m.Switch(cut.type):
            with m.Case(ElementType.FP16):
                m.d.sync += self.results.p.eq(Mux(
                    cut.nan, FP16.quiet_nan,
                    Cat(Mux(cut.infinity, FP16.infinity, rounded[:15]), cut.sign)))
            with m.Case(ElementType.BF16):
                m.d.sync += self.results.p.eq(Mux(
                    cut.nan, BF16.quiet_nan, Cat(rounded[:15], cut.sign)))
            with m.Default():
                m.d.sync += self.results.p.eq(Cat(rounded, cut.sign))
        return m
