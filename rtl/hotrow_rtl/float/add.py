"""Addition of fp32.

Source: IEEE 754-2019, section 5.4.1. A single-path adder with guard, round and sticky bits, as in
D. Goldberg, Computer arithmetic, appendix of J. Hennessy and D. Patterson, Computer Architecture.
"""

from amaranth import Cat, Const, Mux, Signal
from amaranth.lib import data

from ..primitives.pipeline_stage import stage
from .formats import FP32, unpack
from .pipelined_unit import PipelinedUnit

EXTRA = 3  # guard, round and sticky bits
WIDTH = FP32.fraction_bits + 1 + EXTRA
TOTAL = WIDTH + 1
STEP = 8  # bits per coarse shift
GROUPS = -(-TOTAL // STEP)


class Add(PipelinedUnit):
    """a + b in fp32, rounded to nearest, ties to even.

    Subnormals, infinities and signed zeros follow IEEE 754. Every NaN result is 0x7fc00000.
    """

    latency = 8
    layout = data.StructLayout({"a": 32, "b": 32})

    def datapath(self, m):
        a, b = (unpack(m, FP32, self.operands.p[name], name) for name in "ab")
        read = stage(
            m, "read", a=a.significand, b=b.significand, a_exponent=a.exponent,
            b_exponent=b.exponent, a_sign=a.sign, b_sign=b.sign,
            swap=self.operands.p.a[:31] < self.operands.p.b[:31],
            b_minus_a=(b.exponent - a.exponent)[:8], a_minus_b=(a.exponent - b.exponent)[:8],
            infinity=a.infinity | b.infinity,
            nan=a.nan | b.nan | (a.infinity & b.infinity & (a.sign ^ b.sign)),
        )
        ordered = stage(
            m, "ordered", large=Mux(read.swap, read.b, read.a),
            small=Mux(read.swap, read.a, read.b),
            exponent=Mux(read.swap, read.b_exponent, read.a_exponent),
            distance=Mux(read.swap, read.b_minus_a, read.a_minus_b),
            sign=Mux(read.swap, read.b_sign, read.a_sign), subtract=read.a_sign ^ read.b_sign,
            infinity=read.infinity, nan=read.nan,
        )

        # Align the smaller operand; the bits shifted out are or-ed into the sticky bit.
        def shifted_right(value, by, step):
            """Shift `value` right by `by * step` bits."""
            result, lost = Signal(len(value)), Signal()
            with m.Switch(by):
                for count in range(1 << len(by)):
                    with m.Case(count):
                        cut = min(count * step, len(value))
                        m.d.comb += [
                            result.eq(value[cut:]),
                            lost.eq(value[:cut].any() if cut else 0),
                        ]
            return Cat(result[0] | lost, result[1:])

        far = ordered.distance[5:].any()
        coarse = stage(
            m, "coarse", large=ordered.large, exponent=ordered.exponent,
            small=shifted_right(Cat(Const(0, EXTRA), ordered.small),
                                Mux(far, 3, ordered.distance[3:5]), STEP),
            fine=Mux(far, STEP - 1, ordered.distance[:3]),
            sign=ordered.sign, subtract=ordered.subtract, infinity=ordered.infinity,
            nan=ordered.nan,
        )
        aligned = stage(
            m, "aligned", large=Cat(Const(0, EXTRA), coarse.large),
            small=shifted_right(coarse.small, coarse.fine, 1) ^ coarse.subtract.replicate(WIDTH),
            exponent=coarse.exponent, sign=coarse.sign, subtract=coarse.subtract,
            infinity=coarse.infinity, nan=coarse.nan,
        )

        # A difference is never negative, so its carry is dropped.
        total = Signal(TOTAL + 1)
        m.d.comb += total.eq(Cat(1, aligned.large) + Cat(aligned.subtract, aligned.small))
        added = stage(
            m, "added", total=Cat(total[1:-1], total[-1] & ~aligned.subtract),
            exponent=aligned.exponent, sign=aligned.sign, subtract=aligned.subtract,
            infinity=aligned.infinity, nan=aligned.nan,
        )

        # Normalise, but no further than the smallest exponent allows.
        padded = Cat(Const(0, STEP * GROUPS - TOTAL), added.total)
        first, steps = Signal(range(GROUPS)), Signal(range(GROUPS))
        m.d.comb += first.eq(GROUPS - 1)
        for group in reversed(range(GROUPS)):
            with m.If(padded.word_select(GROUPS - 1 - group, STEP).any()):
                m.d.comb += first.eq(group)
        limit = added.exponent[3:]
        m.d.comb += steps.eq(Mux(limit < first, limit, first))
        counted = stage(
            m, "counted", value=(padded << Cat(Const(0, 3), steps))[:len(padded)],
            exponent=added.exponent - Cat(Const(0, 3), steps),
            sign=added.sign & (added.total.any() | ~added.subtract),
            infinity=added.infinity, nan=added.nan,
        )

        bits = Signal(range(STEP))
        m.d.comb += bits.eq(STEP - 1)
        for bit in reversed(range(STEP)):
            with m.If(counted.value[len(padded) - 1 - bit] | (counted.exponent == bit)):
                m.d.comb += bits.eq(bit)
        normal = stage(
            m, "normal", value=(counted.value << bits)[:len(padded)],
            exponent=(counted.exponent - bits)[:8], sign=counted.sign, infinity=counted.infinity,
            nan=counted.nan,
        )

        # The top bit of the window weighs one binade more than `exponent`.
        low = len(padded) - FP32.fraction_bits - 1
        leading, kept = normal.value[-1], normal.value[low:-1]
        half, below, odd = normal.value[low - 1], normal.value[:low - 1].any(), normal.value[low]
        rounded, infinity = Signal(31), Signal()
        m.d.comb += [
            rounded.eq(Cat(kept, Mux(leading, normal.exponent + 1, 0)[:8])
                       + (half & (below | odd))),
            infinity.eq(normal.infinity | (leading & (normal.exponent == 254))),
        ]
        m.d.sync += self.results.p.eq(Mux(
            normal.nan, FP32.quiet_nan,
            Cat(Mux(infinity, FP32.infinity, rounded), normal.sign)))
