"""Cycles of the floating-point units that process one operation at a time."""

import numpy as np

SPECIAL = 2  # if an operand decides the result


def divide_cycles(a, b, quotient):
    """From the operands of a division to its result.

    Parameters
    ----------
    a, b : uint32[n]
        Bits of fp32.
    quotient : float64[n]
        a / b; its value for operands that are zero, infinite or NaN is ignored.

    Returns
    -------
    int64[n]
        29, plus the larger number of leading zeros of a subnormal operand, minus the number of bits
        that a subnormal quotient lacks.
    """
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.abs(quotient))[1] - 1 + 127
    bits = 25 - np.clip(1 - exponent, 0, 25)
    cycles = 4 + bits + np.maximum(leading_zeros(a), leading_zeros(b))
    return np.where(_special(a) | _special(b), SPECIAL, cycles)


def root_cycles(a):
    """From an operand to its root: 28, plus the leading zeros of a subnormal operand."""
    negative = a >> np.uint32(31) == 1
    return np.where(_special(a) | negative, SPECIAL, 28 + leading_zeros(a))


def leading_zeros(bits):
    """Positions by which the leading bit of a subnormal number is below that of a normal one."""
    fraction, normal = bits & np.uint32(0x7FFFFF), bits & np.uint32(0x7F800000) != 0
    return np.where(normal, 0, 24 - np.frexp(fraction.astype(np.float64))[1])


def _special(bits):
    magnitude = bits & np.uint32(0x7FFFFFFF)
    return (magnitude == 0) | (magnitude >= 0x7F800000)
