"""Floating-point formats of row elements.

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
        """Exponent field minus exponent."""
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
        """The only NaN that the units return: positive, quiet, no payload."""
        return self.infinity | 1 << self.fraction_bits - 1


FP32, FP16, BF16 = FloatFormat(8, 23), FloatFormat(5, 10), FloatFormat(8, 7)


class ElementType(enum.Enum, shape=2):
    """Format of a table's elements."""

    FP32 = Element.FP32.value
    FP16 = Element.FP16.value
    BF16 = Element.BF16.value


@dataclass(frozen=True)
class Unpacked:
    """The decoded fields of a number, as Amaranth values.

    A finite magnitude is significand * 2 ** (exponent - bias - fraction_bits).

    Attributes
    ----------
    sign : 1
    exponent : unsigned(exponent_bits)
        The exponent field, or 1 for zeros and subnormals.
    significand : unsigned(fraction_bits + 1)
        Includes the implied leading bit.
    zero, infinity, nan : 1
    """

    sign: Value
    exponent: Value
    significand: Value
    zero: Value
    infinity: Value
    nan: Value


def unpack(m, form: FloatFormat, bits, name) -> Unpacked:
    """Decode `bits`, a number of format `form`; the logic is added to module `m`."""
    number = Signal(form.layout, name=name)
    exponent_zero, exponent_ones, fraction_zero = (
        Signal(name=f"{name}_{what}") for what in ("exponent_zero", "exponent_ones",
                                                   "fraction_zero"))
    m.d.comb += [
        number.eq(bits),
        exponent_zero.eq(number.exponent == 0),
        exponent_ones.eq(number.exponent.all()),
        fraction_zero.eq(number.fraction == 0),
    ]
    return Unpacked(
        sign=number.sign,
        exponent=Mux(exponent_zero, 1, number.exponent),
        significand=Cat(number.fraction, ~exponent_zero),
        zero=exponent_zero & fraction_zero,
        infinity=exponent_ones & fraction_zero,
        nan=exponent_ones & ~fraction_zero,
    )
