"""Square root of fp32.

Source: IEEE 754-2019, section 5.4.1; restoring square root as in M. Ercegovac and T. Lang, Digital
Arithmetic (2003), chapter 6.
"""

from amaranth import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .formats import FP32, unpack

ROOT = FP32.fraction_bits + 2  # the rounding bit is the last


class SquareRoot(wiring.Component):
    """sqrt(a) in fp32, rounded to nearest.

    The root of -0 is -0; the root of any other negative number is NaN. Every NaN result is
    0x7fc00000.

    Attributes
    ----------
    operands : In(stream(a))
    results : Out(stream(32))

    Timing
    ------
    One operation at a time: `latency` cycles from operand to result; `operands` is ready in the
    cycle after the result's handshake. A subnormal operand adds one cycle per leading zero. With a
    zero, negative, infinite or NaN operand the result takes 2 cycles.
    """

    latency = 3 + ROOT  # align, one cycle per root bit, round, result
    layout = data.StructLayout({"a": 32})

    def __init__(self):
        super().__init__({
            "operands": In(stream.Signature(self.layout)),
            "results": Out(stream.Signature(32)),
        })

    def elaborate(self, platform):
        m = Module()
        a = unpack(m, FP32, self.operands.p.a, "a")
        # Each root bit consumes two bits; the integer part has two bits.
        radicand = Signal(FP32.fraction_bits + 3, reset_less=True)
        exponent = Signal(signed(FP32.exponent_bits + 1), reset_less=True)
        remainder = Signal(ROOT + 1, reset_less=True)
        root = Signal(ROOT, reset_less=True)
        bits_left = Signal(range(ROOT + 1), reset_less=True)  # of the root
        sign, nan, infinity, zero = (
            Signal(name=name, reset_less=True) for name in ("sign", "nan", "infinity", "zero"))

        # One restoring step: (2 root + 1)**2 - (2 root)**2 = 4 root + 1.
        trial, difference, fits = (
            Signal(len(remainder) + 2), Signal(len(remainder) + 3), Signal())
        m.d.comb += [
            trial.eq(Cat(radicand[-2:], remainder)),
            difference.eq(trial - Cat(Const(1, 2), root)),
            fits.eq(~difference[-1]),
        ]

        with m.FSM(name="step"):
            with m.State("idle"):
                m.d.comb += self.operands.ready.eq(1)
                m.d.sync += [
                    radicand.eq(a.significand << 1),
                    exponent.eq(a.exponent),
                    remainder.eq(0),
                    root.eq(0),
                    bits_left.eq(ROOT),
                    sign.eq(a.sign),
                    zero.eq(a.zero),
                    infinity.eq(a.infinity),
                    nan.eq(a.nan | (a.sign & ~a.zero)),
                ]
                with m.If(self.operands.valid):
                    m.next = "align"

            with m.State("align"):
                with m.If(nan | infinity | zero):
                    m.d.sync += self.results.p.eq(Mux(
                        nan, FP32.quiet_nan, Cat(Mux(infinity, FP32.infinity, 0)[:31], sign)))
                    m.next = "done"
                with m.Elif(~radicand[-2]):
                    m.d.sync += [radicand.eq(radicand << 1), exponent.eq(exponent - 1)]
                with m.Else():
                    # Halve the exponent; an odd one moves a factor of two to the radicand.
                    with m.If(~exponent[0]):
                        m.d.sync += radicand.eq(radicand << 1)
                    m.d.sync += exponent.eq((exponent + FP32.bias) >> 1)
                    m.next = "root"

            with m.State("root"):
                m.d.sync += [
                    root.eq(Cat(fits, root)),
                    remainder.eq(Mux(fits, difference, trial)),
                    radicand.eq(radicand << 2),
                    bits_left.eq(bits_left - 1),
                ]
                with m.If(bits_left == 1):
                    m.next = "round"

            with m.State("round"):
                # A tie is impossible: the square of a 25-bit odd number exceeds 24 bits.
                m.d.sync += self.results.p.eq(
                    (Cat(root[1:-1], exponent[:FP32.exponent_bits]) + root[0])[:31])
                m.next = "done"

            with m.State("done"):
                m.d.comb += self.results.valid.eq(1)
                with m.If(self.results.ready):
                    m.next = "idle"
        return m
