"""Division of fp32.

Source: IEEE 754-2019, section 5.4.1; restoring division as in M. Ercegovac and T. Lang, Digital
Arithmetic (2003), chapter 5. A subnormal quotient has fewer bits and takes fewer cycles.
"""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .formats import FP32, unpack

QUOTIENT = FP32.fraction_bits + 2  # the rounding bit is the last
TOO_LARGE = (1 << FP32.exponent_bits) - 1


class Divide(wiring.Component):
    """a / b in fp32, rounded to nearest, ties to even.

    Subnormals, infinities and signed zeros follow IEEE 754. Every NaN result is 0x7fc00000.

    Attributes
    ----------
    operands : In(stream(a, b))
    results : Out(stream(32))

    Timing
    ------
    One operation at a time: `latency` cycles from operands to result; `operands` is ready in the
    cycle after the result's handshake. Subnormal operands add max(leading zeros of a, of b)
    cycles. A subnormal result saves one cycle per missing quotient bit. With a zero, infinite or
    NaN operand the result takes 2 cycles.
    """

    latency = 4 + QUOTIENT  # align, setup, one cycle per quotient bit, round, result
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
        exponent = Signal(signed(10), reset_less=True)  # of the result, before normalisation
        field = Signal(FP32.exponent_bits, reset_less=True)
        bits_left = Signal(range(QUOTIENT + 1), reset_less=True)  # of the quotient
        sign, nan, infinity, zero = (
            Signal(name=name, reset_less=True) for name in ("sign", "nan", "infinity", "zero"))

        # One restoring step: `fits` is the next quotient bit.
        difference, fits, partial = (
            Signal(len(remainder) + 1), Signal(), Signal(len(remainder)))
        m.d.comb += [
            difference.eq(remainder - divisor),
            fits.eq(~difference[-1]),
            partial.eq(Mux(fits, difference, remainder)),
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
                    # Normalise the quotient to at least 1.
                    with m.If(~fits):
                        m.d.sync += [remainder.eq(remainder << 1), exponent.eq(exponent - 1)]
                    m.next = "setup"
                with m.Else():
                    m.d.sync += [
                        remainder.eq(Mux(a_aligned, remainder, remainder << 1)),
                        divisor.eq(Mux(b_aligned, divisor, divisor << 1)),
                        exponent.eq(exponent - ~a_aligned + ~b_aligned),
                    ]

            with m.State("setup"):
                m.d.sync += [
                    quotient.eq(0),
                    bits_left.eq(QUOTIENT),
                    field.eq(exponent),
                    infinity.eq(exponent >= TOO_LARGE),
                ]
                m.next = "divide"
                with m.If(exponent < 1):
                    m.d.sync += [bits_left.eq(exponent + (QUOTIENT - 1)), field.eq(0)]
                    with m.If(exponent < 2 - QUOTIENT):
                        m.next = "round"

            with m.State("divide"):
                m.d.sync += [
                    quotient.eq(Cat(fits, quotient)),
                    remainder.eq(partial << 1),
                    bits_left.eq(bits_left - 1),
                ]
                with m.If(bits_left == 1):
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
