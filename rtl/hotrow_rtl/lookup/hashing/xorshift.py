"""The hash that spreads rows over sets: a chain of xor-shifts, linear over GF(2) and invertible.

Because the hash is linear, consecutive and strided row numbers fall into sets with no more than the
unavoidable imbalance, at a few exclusive-ors per bit and without a multiplier. Because it is
invertible, a tag stores only the bits that the set does not imply, and a harvest recovers the row.

The functions take Python integers and NumPy ``uint64`` arrays; ``xorshift_hardware`` has them for
Amaranth values.

Source: xor-shift steps as in G. Marsaglia, "Xorshift RNGs", J. Stat. Software 8 (2003); a
randomiser before the banks as in Hotline's access logger (ISCA 2024).
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


def unhash_key(hashed, choice, width):
    """The inverse of `hash_key`. Repeating a step with doubled shifts inverts it."""
    mask = (1 << width) - 1
    for shift in reversed(CHAINS[choice]):
        while abs(shift) < width:
            hashed, shift = _step(hashed, shift, mask), 2 * shift
    return hashed
