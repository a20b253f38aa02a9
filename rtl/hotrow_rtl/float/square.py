"""Squares of fp32.

Source: IEEE 754-2019, section 5.4.1.
"""

from amaranth import Cat, Mux, Signal
from amaranth.lib import data

from ..primitives.pipeline_stage import stage
from .fma import HALF, SIGNIFICAND
from .formats import FP32, unpack
from .pipelined_unit import PipelinedUnit

# The square of a number with this exponent field or less is subnormal or zero.
TINY = FP32.bias // 2
SHIFTS = SIGNIFICAND // 2  # places of two bits by which a subnormal square that is not 0 is shifted


class Square(PipelinedUnit):
    """a * a in fp32, rounded to nearest, ties to even: fma(a, a, -0).

    Subnormals and infinities follow IEEE 754. Every NaN result is 0x7fc00000.
    """

    latency = 6
    layout = data.StructLayout({"a": 32})

    def datapath(self, m):
        a = unpack(m, FP32, self.operands.p.a, "a")
        read = stage(
            m, "read", a=a.significand, exponent=a.exponent, infinity=a.infinity, nan=a.nan,
            tiny=a.exponent <= TINY, zero=a.exponent <= TINY - SHIFTS)

        low, high = read.a[:HALF], read.a[HALF:]
        products = stage(
            m, "products", low=low * low, high=high * high, cross=low * high, a=read.a,
            exponent=(read.exponent << 1) - FP32.bias, infinity=read.infinity, nan=read.nan,
            tiny=read.tiny, zero=read.zero, shift=Mux(read.tiny, TINY - read.exponent, 0)[:4])

        outer = Cat(products.low, products.high)
        squared = stage(
            m, "squared",
            value=Cat(outer[:HALF], outer[HALF:] + (products.cross << 1))[:2 * SIGNIFICAND],
            a=products.a, exponent=products.exponent, infinity=products.infinity,
            nan=products.nan, tiny=products.tiny, zero=products.zero, shift=products.shift)

        # The significand, whose leading bit a subnormal square lacks, and the rounding bit. The
        # bits below are not all zero if the lower half as many bits of `a` are not.
        value, two = squared.value, squared.value[-1]  # the significand is at least two
        placed = stage(
            m, "placed",
            value=Mux(squared.tiny, value[SIGNIFICAND:],
                      Mux(two, value[SIGNIFICAND - 1:], value[SIGNIFICAND - 2:-1])),
            below=(squared.a[:SHIFTS - 1].any() | squared.a[SHIFTS - 1] & (squared.tiny | two)
                   | Cat(bit & (squared.shift > place)
                         for place, bit in enumerate(squared.a[SHIFTS:])).any()),
            exponent=squared.exponent + two, infinity=squared.infinity, nan=squared.nan,
            tiny=squared.tiny, zero=squared.zero, shift=squared.shift)

        shifted = stage(
            m, "shifted", value=placed.value >> (placed.shift << 1), below=placed.below,
            exponent=Mux(placed.tiny, 0, placed.exponent)[:FP32.exponent_bits],
            infinity=placed.infinity | ~placed.tiny & (
                placed.exponent >= FP32.infinity >> FP32.fraction_bits),
            nan=placed.nan, zero=placed.zero)

        half, odd, rounded = shifted.value[0], shifted.value[1], Signal(31)
        m.d.comb += rounded.eq(Cat(shifted.value[1:SIGNIFICAND], shifted.exponent)
                               + (half & (shifted.below | odd)))
        m.d.sync += self.results.p.eq(Mux(
            shifted.nan, FP32.quiet_nan,
            Mux(shifted.infinity, FP32.infinity, Mux(shifted.zero, 0, rounded))))
