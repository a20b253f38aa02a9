"""Floating-point formats of rows, and what the bits of a number say.

Source: IEEE 754-2019, section 3.4; bf16 is the upper half of fp32.
"""

from dataclasses import dataclass

from amaranth import Cat, Mux, Signal, Value
from amaranth.lib import data, enum

from ..contract.encoding import Element


@dataclass(frozen=True)
class FloatFormat:
    """A binary interchange format.

    Parameters
    ----------
    exponent_bits, fraction_bits : int
    """

    exponent_bits: int
    fraction_bits: int

    @property
    def width(self) -> int:
        """Bits of a number."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        """What the exponent field exceeds the exponent by."""
        return (1 << self.exponent_bits - 1) - 1

    @property
    def layout(self) -> data.StructLayout:
        """The fields of a number."""
        return data.StructLayout({
            "fraction": self.fraction_bits, "exponent": self.exponent_bits, "sign": 1})

    @property
    def infinity(self) -> int:
        """Bits of the positive infinity."""
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits

    @property
    def quiet_nan(self) -> int:
        """The one NaN that our units give: positive, quiet, no payload."""
        return self.infinity | 1 << self.fraction_bits - 1


FP32, FP16, BF16 = FloatFormat(8, 23), FloatFormat(5, 10), FloatFormat(8, 7)


class ElementType(enum.Enum, shape=2):
    """Format of a table's elements."""

    FP32 = Element.FP32.value
    FP16 = Element.FP16.value
    BF16 = Element.BF16.value


@dataclass(frozen=True)
class Unpacked:
    """What the bits of a number say, as Amaranth values.

    Its magnitude, if finite, is significand * 2 ** (exponent - bias - fraction_bits).

    Members
    -------
    sign : 1
    exponent : unsigned(exponent_bits)
        As in the number, but 1 of zeros and subnormals.
    significand : unsigned(fraction_bits + 1)
        With the leading bit that is not stored.
    zero, infinity, nan : 1
    """

    sign: Value
    exponent: Value
    significand: Value
    zero: Value
    infinity: Value
    nan: Value


def unpack(m, form: FloatFormat, bits, name) -> Unpacked:
    """Add to module `m` what reads `bits`, a number of format `form`."""
    number = Signal(form.layout, name=name)
    low, high, whole = (Signal(name=f"{name}_{what}") for what in ("low", "high", "whole"))
    m.d.comb += [
        number.eq(bits),
        low.eq(number.exponent == 0),
        high.eq(number.exponent.all()),
        whole.eq(number.fraction == 0),
    ]
    return Unpacked(
        sign=number.sign,
        exponent=Mux(low, 1, number.exponent),
        significand=Cat(number.fraction, ~low),
        zero=low & whole,
        infinity=high & whole,
        nan=high & ~whole,
    )
