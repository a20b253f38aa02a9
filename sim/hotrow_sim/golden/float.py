"""Golden models of the floating-point units, on the bits of numbers.

Numbers are uint32 arrays with the bits of fp32, or uint16 arrays with the bits of fp16 or bf16.
Every NaN result is positive and quiet, with payload 0.
"""

import numpy as np

QUIET_NAN = {"fp32": 0x7FC00000, "fp16": 0x7E00, "bf16": 0x7FC0}
INFINITY = {"fp32": 0x7F800000, "fp16": 0x7C00, "bf16": 0x7F80}


def is_nan(bits, kind="fp32"):
    """bool[n]: which numbers of format `kind` are NaN."""
    magnitude = bits & np.asarray(0x7FFFFFFF if kind == "fp32" else 0x7FFF, bits.dtype)
    return magnitude > INFINITY[kind]


def fused_multiply_add(a, b, c):
    """a * b + c, rounded once, to nearest even; uint32[n] operands and result.

    The fp64 product is exact: its 48 bits fit into 53 and its exponent is in range. The fp64 sum is
    rounded to odd, by the error of the rounding to nearest, which Knuth's two-sum computes exactly.
    fp64 has more than two bits more than fp32, so a second rounding of that sum equals a single
    rounding (S. Boldo and G. Melquiond, IEEE Trans. Comput. 57, 2008), for subnormal results too.
    """
    with np.errstate(all="ignore"):
        a, b, c = (each.view(np.float32).astype(np.float64) for each in _contiguous(a, b, c))
        product = a * b
        total = product + c
        added = total - product
        error = (product - (total - added)) + (c - added)
        even = total.view(np.uint64) & np.uint64(1) == 0
        inexact = np.isfinite(total) & (error != 0)
        odd = np.nextafter(total, np.copysign(np.inf, error))
        total = np.where(inexact & even, odd, total)
        return _canonical(total.astype(np.float32))


def divide(a, b):
    """a / b, rounded to nearest even as by IEEE 754; uint32[n] operands and result."""
    a, b = (each.view(np.float32) for each in _contiguous(a, b))
    with np.errstate(all="ignore"):
        return _canonical(a / b)


def square_root(a):
    """sqrt(a), rounded to nearest even as by IEEE 754; uint32[n]. sqrt(-0) is -0."""
    with np.errstate(all="ignore"):
        return _canonical(np.sqrt(_contiguous(a)[0].view(np.float32)))


def widen(bits, kind):
    """The same numbers in fp32, exactly.

    Parameters
    ----------
    bits : uint16[n]
        uint32[n] if `kind` is "fp32"; these pass bit for bit, NaN included.
    kind : str
        "fp32", "fp16" or "bf16".

    Returns
    -------
    uint32[n]
    """
    if kind == "fp32":
        return bits.copy()
    if kind == "fp16":
        return _canonical(bits.view(np.float16).astype(np.float32))
    return _canonical((bits.astype(np.uint32) << np.uint32(16)).view(np.float32))


def narrow(bits, kind):
    """fp32 rounded to nearest even, the inverse of `widen`.

    Parameters
    ----------
    bits : uint32[n]
    kind : str

    Returns
    -------
    uint16[n], or uint32[n] if `kind` is "fp32"
    """
    if kind == "fp32":
        return bits.copy()
    if kind == "fp16":
        with np.errstate(all="ignore"):
            half = bits.view(np.float32).astype(np.float16).view(np.uint16)
    else:
        # A carry out of the fraction increments the exponent, up to infinity.
        odd = bits >> np.uint32(16) & np.uint32(1)
        wide = bits.astype(np.uint64) + np.uint64(0x7FFF) + odd
        half = (wide >> np.uint64(16)).astype(np.uint16)
    return np.where(is_nan(bits), np.uint16(QUIET_NAN[kind]), half)


def _contiguous(*numbers):
    return [np.ascontiguousarray(each, np.uint32) for each in numbers]


def _canonical(numbers):
    """Bits of fp32 numbers, with one NaN."""
    return np.where(np.isnan(numbers), np.uint32(QUIET_NAN["fp32"]), numbers.view(np.uint32))
