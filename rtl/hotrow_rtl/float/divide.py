"""Division of fp32.

Source: IEEE 754-2019, section 5.4.1; restoring division, as in M. Ercegovac and T. Lang, Digital
Arithmetic (2003), chapter 5. A subnormal quotient has fewer bits, so it is found sooner.
"""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .formats import FP32, unpack

QUOTIENT = FP32.fraction_bits + 2  # the rounding bit is the last
TOO_LARGE = (1 << FP32.exponent_bits) - 1


class Divide(wiring.Component):
    """a / b in fp32, rounded to nearest, ties to even.

    Subnormal numbers, infinities and signed zeros are those of IEEE 754; every NaN that comes out
    is 0x7fc00000.

    Members
    -------
    operands : In(stream(a, b))
    results : Out(stream(32))

    Timing
    ------
    One operation at a time, from its operands to its result `latency` cycles; the next operands
    are taken in the cycle after the result. Subnormal operands take one cycle more for each
    leading zero of the one with more of them, subnormal results one less for each bit they
    lack; an operand that is zero, infinite or NaN leaves 2.
    """

    latency = 4 + QUOTIENT  # align, plan, the quotient's bits, round; then the result is there
    layout = data.StructLayout({"a": 32, "b": 32})

    def __init__(self):
        super().__init__({
            "operands": In(stream.Signature(self.layout)),
            "results": Out(stream.Signature(32)),
        })

    def elaborate(self, platform):
        m = Module()
        a, b = (unpack(m, FP32, self.operands.p[name], name) for name in "ab")
        remainder = Signal(FP32.fraction_bits + 2, reset_less=True)
        divisor = Signal(FP32.fraction_bits + 1, reset_less=True)
        quotient = Signal(QUOTIENT, reset_less=True)
        exponent = Signal(signed(10), reset_less=True)  # of the result, if its first bit is 1
        field = Signal(FP32.exponent_bits, reset_less=True)
        left = Signal(range(QUOTIENT + 1), reset_less=True)  # bits of the quotient to come
        sign, nan, infinity, zero = (
            Signal(name=name, reset_less=True) for name in ("sign", "nan", "infinity", "zero"))

        # The only subtraction; what it leaves if positive, the next bit of the quotient.
        difference, fits, rest = (
            Signal(len(remainder) + 1), Signal(), Signal(len(remainder)))
        m.d.comb += [
            difference.eq(remainder - divisor),
            fits.eq(~difference[-1]),
            rest.eq(Mux(fits, difference, remainder)),
        ]
        a_aligned, b_aligned = remainder[len(divisor) - 1], divisor[-1]

        with m.FSM(name="step"):
            with m.State("idle"):
                m.d.comb += self.operands.ready.eq(1)
                m.d.sync += [
                    remainder.eq(a.significand),
                    divisor.eq(b.significand),
                    exponent.eq(a.exponent - b.exponent + FP32.bias),
                    sign.eq(a.sign ^ b.sign),
                    nan.eq(a.nan | b.nan | (a.zero & b.zero) | (a.infinity & b.infinity)),
                    infinity.eq(a.infinity | b.zero),
                    zero.eq(a.zero | b.infinity),
                ]
                with m.If(self.operands.valid):
                    m.next = "align"

            with m.State("align"):
                with m.If(nan | infinity | zero):
                    m.d.sync += self.results.p.eq(Mux(
                        nan, FP32.quiet_nan, Cat(Mux(infinity, FP32.infinity, 0)[:31], sign)))
                    m.next = "done"
                with m.Elif(a_aligned & b_aligned):
                    # The quotient is 1 at least, or it is doubled.
                    with m.If(~fits):
                        m.d.sync += [remainder.eq(remainder << 1), exponent.eq(exponent - 1)]
                    m.next = "plan"
                with m.Else():
                    m.d.sync += [
                        remainder.eq(Mux(a_aligned, remainder, remainder << 1)),
                        divisor.eq(Mux(b_aligned, divisor, divisor << 1)),
                        exponent.eq(exponent - ~a_aligned + ~b_aligned),
                    ]

            with m.State("plan"):
                m.d.sync += [
                    quotient.eq(0),
                    left.eq(QUOTIENT),
                    field.eq(exponent),
                    infinity.eq(exponent >= TOO_LARGE),
                ]
                m.next = "divide"
                with m.If(exponent < 1):
                    m.d.sync += [left.eq(exponent + (QUOTIENT - 1)), field.eq(0)]
                    with m.If(exponent < 2 - QUOTIENT):
                        m.next = "round"

            with m.State("divide"):
                m.d.sync += [
                    quotient.eq(Cat(fits, quotient)),
                    remainder.eq(rest << 1),
                    left.eq(left - 1),
                ]
                with m.If(left == 1):
                    m.next = "round"

            with m.State("round"):
                half, odd = quotient[0], quotient[1]
                rounded = Signal(31)
                m.d.comb += rounded.eq(Cat(quotient[1:-1], field)
                                       + (half & (odd | remainder.any())))
                m.d.sync += self.results.p.eq(
                    Cat(Mux(infinity, FP32.infinity, rounded), sign))
                m.next = "done"

            with m.State("done"):
                m.d.comb += self.results.valid.eq(1)
                with m.If(self.results.ready):
                    m.next = "idle"
        return m
