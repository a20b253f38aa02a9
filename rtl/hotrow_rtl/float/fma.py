"""Fused multiply-add of fp32: a * b + c, rounded once.

Source: IEEE 754-2019, section 5.4.1; on one path, the addend shifted along the product, as in
R. K. Montoye et al., IBM J. Res. Dev. 34 (1990). Of a negative sum the complement is normalised:
what it lacks, one unit of the last place, only changes how it is rounded.
"""

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..primitives.pipeline_stage import stage
from .formats import FP32, unpack

SIGNIFICAND = FP32.fraction_bits + 1  # 24
HALF = 18  # width of a hardware multiplier
# From the top: the addend's place when it is far above the product, two empty bits, the product,
# and two bits more, for that of a subnormal number begins up to 23 bits later.
BELOW_PRODUCT = 2
WINDOW = SIGNIFICAND + 2 + 2 * SIGNIFICAND + BELOW_PRODUCT
# A number with its leading bit at the window's top has the sum of the factors' exponents less this.
EXPONENT_OFFSET = FP32.bias - (SIGNIFICAND + 2) - 1
STEP = 8  # of the coarse shifts
GROUPS = -(-WINDOW // STEP)
KEPT = SIGNIFICAND + STEP  # behind the coarse shift: result, rounding bit, and what shifts in


class FusedMultiplyAdd(wiring.Component):
    """a * b + c in fp32, rounded once, to nearest, ties to even.

    Subnormal numbers, infinities and signed zeros are those of IEEE 754; every NaN that comes out
    is 0x7fc00000. It multiplies as fma(a, b, -0) and adds as fma(1, a, b).

    Members
    -------
    operands : In(stream(a, b, c, always_ready=True))
    results : Out(stream(32, always_ready=True))
        One for each of the operands, in order.

    Timing
    ------
    Always `latency` cycles; one operation a cycle. Nothing waits.
    """

    latency = 9
    layout = data.StructLayout({"a": 32, "b": 32, "c": 32})

    def __init__(self):
        super().__init__({
            "operands": In(stream.Signature(self.layout, always_ready=True)),
            "results": Out(stream.Signature(32, always_ready=True)),
        })

    def elaborate(self, platform):
        m = Module()
        valid = Signal(self.latency)
        m.d.sync += valid.eq(Cat(self.operands.valid, valid))
        m.d.comb += self.results.valid.eq(valid[-1])

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

        # An addend that begins above the window stays at its top, far enough above the product;
        # so it does beside the product zero, whose exponent says nothing.
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
        # How many bits of the addend leave the window, by the number of steps.
        left = (min(max(STEP * steps + len(begun.c) - WINDOW, 0), len(begun.c))
                for steps in range(16))
        aligned = stage(
            m, "aligned", product=Cat(begun.outer[:HALF], begun.outer[HALF:] + begun.middle)[
                :2 * SIGNIFICAND],
            c=Mux(begun.subtract, ~window, window),
            lost=Array(begun.c[:bits].any() if bits else Const(0) for bits in left)[begun.steps],
            limit=begun.exponent - 1, exponent=begun.exponent,
            nan=begun.nan, infinity=begun.infinity, sign=begun.sign, subtract=begun.subtract,
        )

        # What was lost of a subtrahend takes a whole unit here and leaves a part of it below. The
        # lowest bit makes the carry.
        total = Signal(1 + WINDOW + 1)
        m.d.comb += total.eq(Cat(1, Const(0, BELOW_PRODUCT), aligned.product)
                             + Cat(aligned.subtract & ~aligned.lost, aligned.c))
        # A result's exponent is 1 at least: marks end the count of leading zeros.
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
            # Zero is positive if opposed numbers cancel.
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
            # With nothing below, the unit that a complement lacks carries into the rounding bit.
            up.eq(Mux(normal.negative & ~normal.below, half | odd, half & (normal.below | odd))),
            rounded.eq(Cat(normal.value[1:-1], Mux(leading, normal.exponent[:8], 0)) + up),
            infinity.eq(normal.infinity | (leading & (normal.exponent >= FP32.infinity >> 23))),
        ]
        m.d.sync += self.results.p.eq(Mux(
            normal.nan, FP32.quiet_nan,
            Cat(Mux(infinity, FP32.infinity, rounded), normal.sign)))
        return m
