"""The hash that spreads rows over sets: a chain of xor-shifts, linear over GF(2) and invertible.

Linear, because consecutive and strided row numbers then fall into sets with no more than the
unavoidable imbalance, at a few exclusive-ors per bit and no multiplier. Invertible, because a tag
then stores only the bits that the set number does not, and a harvest recovers the row.

The functions work alike on Python integers and NumPy ``uint64`` arrays; ``mixing_gates`` has them
for hardware.

Source: xor-shift steps as in G. Marsaglia, "Xorshift RNGs", J. Stat. Software 8 (2003); the idea of
a randomiser in front of the banks is Hotline's (ISCA 2024, access logger).
"""

# Positive: shift towards the high end; negative: towards the low end. One chain per hash choice.
CHAINS = ((-11, 24, -5, 20, -15), (-21, 19, -11, 3, -5, 19))


def _step(word, shift, mask):
    return word ^ (word << shift) & mask if shift > 0 else word ^ (word >> -shift)


def hash_key(key, choice, width):
    """Permute the `width` low bits of `key` by chain number `choice`."""
    mask = (1 << width) - 1
    for shift in CHAINS[choice]:
        key = _step(key, shift, mask)
    return key


def unhash_key(mixed, choice, width):
    """The inverse of `mix`: each xor-shift undone by doubling it until it leaves the word."""
    mask = (1 << width) - 1
    for shift in reversed(CHAINS[choice]):
        while abs(shift) < width:
            mixed, shift = _step(mixed, shift, mask), 2 * shift
    return mixed
