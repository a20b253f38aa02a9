"""Operands for floating-point units: corners, every distance of exponents, random numbers.

Numbers are the bits of fp32 in uint32 arrays. Random numbers depend on a seed.
"""

import numpy as np
from hotrow_sim.golden.float import fused_multiply_add

ONE, MINUS_ZERO, SIGN = 0x3F800000, 0x80000000, 0x80000000
LARGEST_EXPONENT = 254

# Zero, smallest and largest subnormal, smallest normal and its successor, 1 and its neighbours, 3,
# largest, infinity, a quiet and a signalling NaN; with both signs.
_MAGNITUDES = (0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3F7FFFFF, ONE, ONE + 1, 0x40400000,
               0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001)
CORNERS = np.array([sign | bits for bits in _MAGNITUDES for sign in (0, SIGN)], np.uint32)


def products(*axes):
    """Every combination of the numbers of the arrays; one array per argument."""
    return [np.ascontiguousarray(each.ravel()) for each in np.meshgrid(*axes, indexing="ij")]


def numbers(sign, exponent, fraction):
    """Bits from the fields of fp32, with exponents clipped to finite numbers."""
    exponent = np.clip(exponent, 0, LARGEST_EXPONENT).astype(np.uint32)
    return (np.asarray(sign, np.uint32) << np.uint32(31) | exponent << np.uint32(23)
            | np.asarray(fraction, np.uint32))


def fractions(count, rng):
    """23 bits: random, few ones at either end, or a run of ones from either end."""
    any_ = rng.integers(0, 1 << 23, count, dtype=np.uint32)
    place = rng.integers(0, 24, count, dtype=np.uint32)
    few = rng.integers(0, 8, count, dtype=np.uint32)
    ones = np.uint32(0x7FFFFF)
    kinds = [any_, any_, (any_ >> place) << place, few << np.uint32(20), few,
             (ones << place) & ones, ones >> place, ones ^ few]
    return np.choose(rng.integers(0, len(kinds), count), kinds) & ones


def finite(count, rng, low=0, high=LARGEST_EXPONENT):
    """Numbers with exponents from `low` to `high`, a tenth of them near each end."""
    exponent = rng.integers(low, high + 1, count)
    near = rng.integers(0, 3, count)
    where = rng.random(count)
    exponent = np.where(where < 0.1, low + near, np.where(where > 0.9, high - near, exponent))
    return numbers(rng.integers(0, 2, count), exponent, fractions(count, rng))


def addends_at(a, b, distance, rng):
    """Addends whose exponents exceed those of the products a * b by `distance`."""
    exponent = exponents(a) + exponents(b) - 127 + distance
    return numbers(rng.integers(0, 2, len(a)), exponent, fractions(len(a), rng))


def exponents(bits):
    """Exponent fields; 1 for subnormal numbers."""
    return np.maximum((bits >> np.uint32(23) & np.uint32(0xFF)).astype(np.int64), 1)


def multiply_add_cases(count, seed):
    """Operands a, b, c: every distance of the addend, and cancellation.

    A fifth each: any exponents; a subnormal factor; product and addend of similar size; an addend
    within a few units of the negative rounded product; random bits.
    """
    rng = np.random.default_rng(seed)
    part = -(-count // 5)
    middle = [finite(part, rng, 64, 190) for _ in range(2)]
    distance = np.arange(part) % 160 - 80
    cases = [(*middle, addends_at(*middle, distance, rng))]
    subnormal, other = finite(part, rng, 0, 1), finite(part, rng)
    cases.append((subnormal, other, addends_at(subnormal, other, distance % 96 - 64, rng)))
    alike = finite(part, rng), finite(part, rng)
    cases.append((*alike, addends_at(*alike, rng.integers(-3, 4, part), rng)))
    factors = finite(part, rng), finite(part, rng)
    product = fused_multiply_add(*factors, np.full(part, MINUS_ZERO, np.uint32))
    off = rng.integers(-2, 3, part) * (rng.random(part) < 0.7)
    magnitude = np.clip((product & np.uint32(0x7FFFFFFF)).astype(np.int64) + off, 0, 0x7F7FFFFF)
    cases.append((*factors, (~product & np.uint32(SIGN)) | magnitude.astype(np.uint32)))
    cases.append(tuple(rng.integers(0, 1 << 32, (3, part), dtype=np.uint32)))
    return [np.concatenate(each)[:count] for each in zip(*cases, strict=True)]


def divide_cases(count, seed):
    """Operands a, b: results of every exponent, exact and nearly exact results, random bits."""
    rng = np.random.default_rng(seed)
    part = -(-count // 4)
    a, b = finite(part, rng), finite(part, rng)
    cases = [(a, b)]
    # Results near both ends: overflow, subnormal, less than half of the smallest.
    below, above = finite(part, rng, 0, 140), finite(part, rng, 100, 254)
    swap = rng.random(part) < 0.5
    cases.append((np.where(swap, below, above), np.where(swap, above, below)))
    product = fused_multiply_add(a, b, np.full(part, MINUS_ZERO, np.uint32))
    off = rng.integers(-1, 2, part)
    near = np.clip((product & np.uint32(0x7FFFFFFF)).astype(np.int64) + off, 0, 0x7F7FFFFF)
    cases.append((near.astype(np.uint32) | product & np.uint32(SIGN), b))
    cases.append(tuple(rng.integers(0, 1 << 32, (2, part), dtype=np.uint32)))
    return [np.concatenate(each)[:count] for each in zip(*cases, strict=True)]


def root_cases(count, seed):
    """Operands: any exponents, squares and their neighbours, a few negative numbers."""
    rng = np.random.default_rng(seed)
    part = -(-count // 3)
    a = finite(part, rng) & np.uint32(0x7FFFFFFF)
    base = finite(part, rng, 64, 190)
    few = np.where(rng.random(part) < 0.5, base & np.uint32(0xFFFFF000), base)
    square = fused_multiply_add(few, few, np.full(part, MINUS_ZERO, np.uint32))
    square = (square.astype(np.int64) + rng.integers(-1, 2, part)).astype(np.uint32)
    any_ = rng.integers(0, 1 << 32, part, dtype=np.uint32)
    any_ &= np.where(rng.random(part) < 0.9, np.uint32(0x7FFFFFFF), np.uint32(0xFFFFFFFF))
    return np.concatenate([a, square, any_])[:count]


def halfway(fraction_bits, exponent_bits):
    """The numbers halfway between neighbours of a narrower format, and their neighbours in fp32.

    Parameters
    ----------
    fraction_bits, exponent_bits : int
        Of the narrower format.

    Returns
    -------
    uint32[n]
        Every number of that format from zero to infinity, every halfway point, and both minus and
        plus one unit of fp32; with both signs.
    """
    bias = (1 << exponent_bits - 1) - 1
    steps = np.arange(((1 << exponent_bits) - 1) << fraction_bits, dtype=np.int64)
    exponent, fraction = steps >> fraction_bits, steps & (1 << fraction_bits) - 1
    fraction = fraction + (exponent > 0) * (1 << fraction_bits)
    scale = np.maximum(exponent, 1) - bias - fraction_bits
    with np.errstate(over="ignore"):
        exact = np.ldexp(fraction.astype(np.float64), scale)
        half = np.ldexp(2.0 * fraction + 1, scale - 1)
        bits = np.concatenate([exact, half]).astype(np.float32).view(np.uint32).astype(np.int64)
    near = np.unique(np.clip(np.concatenate([bits - 1, bits, bits + 1]), 0, 0x7F800000))
    return np.concatenate([near, near | SIGN]).astype(np.uint32)
