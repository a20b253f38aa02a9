"""Conversion of row elements to and from fp32.

Source: IEEE 754-2019, section 5.4.2.
"""

from amaranth import Cat, Const, Mux, Signal
from amaranth.lib import data

from ..primitives.pipeline_stage import stage
from .formats import BF16, FP16, FP32, ElementType, unpack
from .pipelined_unit import PipelinedUnit

typed = data.StructLayout({"value": 32, "type": ElementType})  # 16-bit types in the low bits
CUT = FP32.fraction_bits - FP16.fraction_bits  # fraction bits that fp16 lacks
REBIAS = FP32.bias - FP16.bias
MAX_SHIFT = FP16.fraction_bits + 1  # a larger shift leaves less than half of the smallest fp16


class Widen(PipelinedUnit):
    """Convert a row element to fp32, exactly.

    fp32 passes bit for bit. A NaN of another type becomes 0x7fc00000. The unit ignores the upper
    16 bits of a 16-bit element.
    """

    latency = 2
    layout = typed

    def datapath(self, m):
        operand = self.operands.p
        fp16 = unpack(m, FP16, operand.value[:FP16.width], "fp16")
        bf16 = unpack(m, BF16, operand.value[:BF16.width], "bf16")
        zeros = Signal(range(FP16.fraction_bits + 2))  # leading zeros of the significand
        for place, bit in enumerate(fp16.significand):
            with m.If(bit):
                m.d.comb += zeros.eq(FP16.fraction_bits - place)
        read = stage(
            m, "read", value=operand.value, type=operand.type, zeros=zeros,
            significand=fp16.significand, exponent=fp16.exponent, zero=fp16.zero,
            infinity=fp16.infinity, fp16_nan=fp16.nan, bf16_nan=bf16.nan)

        fraction, exponent = Signal(FP16.fraction_bits), Signal(FP32.exponent_bits)
        m.d.comb += [
            fraction.eq(read.significand << read.zeros),
            exponent.eq(Mux(read.infinity, FP32.infinity >> FP32.fraction_bits,
                            Mux(read.zero, 0, read.exponent + REBIAS - read.zeros))),
        ]
        with m.Switch(read.type):
            with m.Case(ElementType.FP16):
                m.d.sync += self.results.p.eq(Mux(
                    read.fp16_nan, FP32.quiet_nan,
                    Cat(Const(0, CUT), fraction, exponent, read.value[FP16.width - 1])))
            with m.Case(ElementType.BF16):
                m.d.sync += self.results.p.eq(Mux(
                    read.bf16_nan, FP32.quiet_nan, Cat(Const(0, 16), read.value[:BF16.width])))
            with m.Default():
                m.d.sync += self.results.p.eq(read.value)


class Narrow(PipelinedUnit):
    """Convert fp32 to a row element of the operand's `type`, rounded to nearest, ties to even.

    fp32 passes bit for bit. A NaN becomes 0x7e00 in fp16 and 0x7fc0 in bf16. The upper 16 bits of
    a 16-bit result are zero.
    """

    latency = 4
    layout = typed

    def datapath(self, m):
        operand = self.operands.p
        number = unpack(m, FP32, operand.value, "number")
        read = stage(
            m, "read", value=operand.value, type=operand.type, significand=number.significand,
            exponent=number.exponent - REBIAS,  # in fp16
            nan=number.nan & (operand.type != ElementType.FP32))

        # A subnormal fp16 loses one more bit per binade.
        subnormal = read.exponent < 1
        shift = Mux(read.exponent < -MAX_SHIFT, MAX_SHIFT + 1, 1 - read.exponent)[:4]
        placed = stage(
            m, "placed", value=read.value, type=read.type, significand=read.significand,
            exponent=Mux(subnormal, 0, read.exponent)[:FP16.exponent_bits],
            shift=Mux(subnormal, shift, 0), nan=read.nan,
            infinity=(read.type == ElementType.FP16) & (read.exponent >= 31))

        kept, half, below = Signal(31), Signal(), Signal()
        with m.Switch(placed.type):
            with m.Case(ElementType.FP16):
                bits = placed.significand[CUT - 1:] >> placed.shift
                dropped = Cat(bit & (placed.shift >= place - CUT + 2)
                              for place, bit in enumerate(placed.significand[:CUT + MAX_SHIFT]))
                m.d.comb += [
                    # The leading bit is implied by an exponent other than 0.
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
