"""The hash of `mixing` as gates."""

from amaranth import Cat, Signal

from .xorshift import CHAINS, unhash_key


def hash_key_hw(m, name, key, choice, width):
    """`mix` of an Amaranth value, step by step in signals called `name` and a number."""
    for number, shift in enumerate(CHAINS[choice]):
        step = Signal(width, name=f"{name}{number}")
        shifted = (key << shift)[:width] if shift > 0 else key >> -shift
        m.d.comb += step.eq(key ^ shifted)
        key = step
    return key


def unhash_key_hw(key, choice, width):
    """`unmix` of an Amaranth value: each bit the exclusive-or of those of the key's that it depends
    on, for a function that is linear over GF(2) is the sum of what it makes of each bit."""
    columns = [unhash_key(1 << bit, choice, width) for bit in range(width)]
    return Cat(Cat(key[bit] for bit, column in enumerate(columns) if column >> row & 1).xor()
               for row in range(width))
