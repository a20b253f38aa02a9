"""Counters of 32 bits that wrap around."""

WORD = 0xFFFF_FFFF
HALF_RANGE = 1 << 31


def ahead(number, other):
    """How far `number` is ahead of `other`, 0 to 2**32 - 1."""
    return (number - other) & WORD
