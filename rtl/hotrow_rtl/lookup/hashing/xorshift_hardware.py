"""The hash of ``xorshift`` for Amaranth values."""

from amaranth import Cat, Signal

from .xorshift import CHAINS, unhash_key


def hash_key_hw(m, name, key, choice, width):
    """`hash_key` of a value, with a signal for each step: `name` and a number."""
    for number, shift in enumerate(CHAINS[choice]):
        step = Signal(width, name=f"{name}{number}")
        shifted = (key << shift)[:width] if shift > 0 else key >> -shift
        m.d.comb += step.eq(key ^ shifted)
        key = step
    return key


def unhash_key_hw(key, choice, width):
    """`unhash_key` of a value. The function is linear over GF(2): each bit of the result is the
    exclusive-or of those bits of `key` whose unit vectors set it."""
    columns = [unhash_key(1 << bit, choice, width) for bit in range(width)]
    return Cat(Cat(key[bit] for bit, column in enumerate(columns) if column >> row & 1).xor()
               for row in range(width))
