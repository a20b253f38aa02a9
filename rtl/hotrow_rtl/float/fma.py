"""Fused multiply-add of fp32: a * b + c, rounded once.

Source: IEEE 754-2019, section 5.4.1. A single-path unit that aligns the addend to the product, as
in R. K. Montoye et al., IBM J. Res. Dev. 34 (1990). A negative sum is normalised as its ones'
complement; the missing unit in the last place only affects rounding.
"""

from amaranth import Array, Cat, Const, Mux, Signal
from amaranth.lib import data

from ..primitives.pipeline_stage import stage
from .formats import FP32, unpack
from .pipelined_unit import PipelinedUnit

SIGNIFICAND = FP32.fraction_bits + 1  # 24
HALF = 18  # width of a hardware multiplier
# The window from its top: a significand far above the product, two empty bits, the product, and
# two bits below it, as the product of a subnormal begins up to 23 bits lower.
BELOW_PRODUCT = 2
WINDOW = SIGNIFICAND + 2 + 2 * SIGNIFICAND + BELOW_PRODUCT
# Exponent of the window's top bit: sum of the factors' exponents minus this.
EXPONENT_OFFSET = FP32.bias - (SIGNIFICAND + 2) - 1
STEP = 8  # bits per coarse shift
GROUPS = -(-WINDOW // STEP)
KEPT = SIGNIFICAND + STEP  # after the coarse shift: result, rounding bit, bits for the fine shift


class FusedMultiplyAdd(PipelinedUnit):
    """a * b + c in fp32, rounded once, to nearest, ties to even.

    Subnormals, infinities and signed zeros follow IEEE 754. Every NaN result is 0x7fc00000. A
    product is fma(a, b, -0), a sum is fma(1, a, b).
    """

    latency = 9
    layout = data.StructLayout({"a": 32, "b": 32, "c": 32})

    def datapath(self, m):
        a, b, c = (unpack(m, FP32, self.operands.p[name], name) for name in "abc")
        read = stage(
            m, "read", a=a.significand, b=b.significand, c=c.significand,
            product_sign=a.sign ^ b.sign, c_sign=c.sign,
            product_exponent=a.exponent + b.exponent, c_exponent=c.exponent,
            c_offset=c.exponent + EXPONENT_OFFSET,
            product_zero=a.zero | b.zero, product_infinity=a.infinity | b.infinity,
            c_infinity=c.infinity,
            nan=a.nan | b.nan | c.nan | (a.zero & b.infinity) | (a.infinity & b.zero),
        )

        opposed = read.product_sign ^ read.c_sign
        products = stage(
            m, "products",
            low=read.a[:HALF] * read.b[:HALF], high=read.a[HALF:] * read.b[HALF:],
            cross=read.a[:HALF] * read.b[HALF:], other_cross=read.a[HALF:] * read.b[:HALF],
            c=read.c, c_exponent=read.c_exponent, product_exponent=read.product_exponent,
            distance=read.product_exponent - read.c_offset, product_zero=read.product_zero,
            nan=read.nan | (read.product_infinity & read.c_infinity & opposed),
            infinity=read.product_infinity | read.c_infinity,
            sign=Mux(read.c_infinity, read.c_sign, read.product_sign), subtract=opposed,
        )

        # An addend above the window, and any addend to a zero product, goes to the window's top.
        above, steps = Signal(), Signal(4)
        m.d.comb += [
            above.eq((products.distance < 0) | products.product_zero),
            steps.eq(Mux(products.distance >= 16 * STEP, 15, products.distance[3:7])),
        ]
        begun = stage(
            m, "begun", outer=Cat(products.low, products.high),
            middle=products.cross + products.other_cross,
            c=Cat(Const(0, STEP - 1), products.c) >> Mux(above, 0, products.distance[:3]),
            steps=Mux(above, 0, steps),
            exponent=Mux(above, products.c_exponent,
                         products.product_exponent - EXPONENT_OFFSET)[:9],
            nan=products.nan, infinity=products.infinity, sign=products.sign,
            subtract=products.subtract,
        )

        window = Signal(WINDOW)
        m.d.comb += window.eq(
            Cat(Const(0, WINDOW - len(begun.c)), begun.c) >> Cat(Const(0, 3), begun.steps))
        # Bits of the addend that are shifted out of the window, by the number of steps.
        shifted_out = (min(max(STEP * steps + len(begun.c) - WINDOW, 0), len(begun.c))
                       for steps in range(16))
        aligned = stage(
            m, "aligned", product=Cat(begun.outer[:HALF], begun.outer[HALF:] + begun.middle)[
                :2 * SIGNIFICAND],
            c=Mux(begun.subtract, ~window, window),
            lost=Array(begun.c[:bits].any() if bits else Const(0)
                       for bits in shifted_out)[begun.steps],
            limit=begun.exponent - 1, exponent=begun.exponent,
            nan=begun.nan, infinity=begun.infinity, sign=begun.sign, subtract=begun.subtract,
        )

        # The lowest bit of each operand makes the carry. A subtrahend that lost bits subtracts a
        # whole unit here; `lost` accounts for the difference when rounding.
        total = Signal(1 + WINDOW + 1)
        m.d.comb += total.eq(Cat(1, Const(0, BELOW_PRODUCT), aligned.product)
                             + Cat(aligned.subtract & ~aligned.lost, aligned.c))
        # The exponent is at least 1: `last_group` and `last_bit` limit the normalising shift.
        added = stage(
            m, "added", total=total[1:-1], negative=aligned.subtract & ~total[-1],
            lost=aligned.lost, exponent=aligned.exponent,
            last_group=Cat(aligned.limit[3:] == group for group in range(GROUPS)),
            last_bit=Cat(aligned.limit[:3] == bit for bit in range(STEP)),
            nan=aligned.nan, infinity=aligned.infinity, sign=aligned.sign,
            subtract=aligned.subtract,
        )

        padded = Cat(Const(0, STEP * GROUPS - WINDOW), added.total)
        groups = [padded.word_select(GROUPS - 1 - group, STEP) for group in range(GROUPS)]
        complement = added.negative.replicate(STEP)
        ones = Cat((each ^ complement).any() for each in groups)
        first, limited = Signal(range(GROUPS)), Signal()
        for group in reversed(range(GROUPS)):
            with m.If(ones[group] | added.last_group[group]):
                m.d.comb += [first.eq(group), limited.eq(added.last_group[group])]
        counted = stage(
            m, "counted", padded=padded, first=first, negative=added.negative,
            last_bit=added.last_bit & limited.replicate(STEP),
            rest=Cat(each.any() for each in groups[KEPT // STEP:]), lost=added.lost,
            exponent=added.exponent, nan=added.nan, infinity=added.infinity,
            # Opposite numbers cancel to +0.
            sign=Mux(added.infinity, added.sign,
                     (added.sign ^ added.negative) & (ones.any() | ~added.subtract)),
        )

        kept = Signal(KEPT)
        m.d.comb += kept.eq((counted.padded << Cat(Const(0, 3), counted.first))[
            len(padded) - KEPT:len(padded)])
        shifted = stage(
            m, "shifted", kept=kept ^ counted.negative.replicate(KEPT), low=kept[:STEP - 1],
            last_bit=counted.last_bit, negative=counted.negative,
            below=counted.lost | (counted.rest >> counted.first).any(),
            exponent=counted.exponent - Cat(Const(0, 3), counted.first),
            nan=counted.nan, infinity=counted.infinity, sign=counted.sign,
        )

        bits = Signal(range(STEP))
        for bit in reversed(range(STEP)):
            with m.If(shifted.kept[KEPT - 1 - bit] | shifted.last_bit[bit]):
                m.d.comb += bits.eq(bit)
        normal = stage(
            m, "normal", value=(shifted.kept << bits)[STEP - 1:KEPT],
            below=shifted.below | (shifted.low << bits)[:STEP - 1].any(),
            exponent=(shifted.exponent - bits)[:9], negative=shifted.negative,
            nan=shifted.nan, infinity=shifted.infinity, sign=shifted.sign,
        )

        half, odd, leading = normal.value[0], normal.value[1], normal.value[-1]
        up, rounded, infinity = Signal(), Signal(31), Signal()
        m.d.comb += [
            # A ones' complement lacks one unit; with zeros below it carries into the rounding bit.
            up.eq(Mux(normal.negative & ~normal.below, half | odd, half & (normal.below | odd))),
            rounded.eq(Cat(normal.value[1:-1], Mux(leading, normal.exponent[:8], 0)) + up),
            infinity.eq(normal.infinity | (leading & (normal.exponent >= FP32.infinity >> 23))),
        ]
        m.d.sync += self.results.p.eq(Mux(
            normal.nan, FP32.quiet_nan,
            Cat(Mux(infinity, FP32.infinity, rounded), normal.sign)))
