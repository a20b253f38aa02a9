"""The hash of `mixing` as gates: each bit the exclusive-or of the key's bits that it depends on.

Step by step the chains would be the same function with several times the text and the logic.
"""

from amaranth import Cat

from .mixing import mix, unmix


def mixed(key, choice, width):
    """`mix` of an Amaranth value."""
    return _linear(lambda number: mix(number, choice, width), key, width)


def unmixed(key, choice, width):
    """`unmix` of an Amaranth value."""
    return _linear(lambda number: unmix(number, choice, width), key, width)


def _linear(function, key, width):
    """A function that is linear over GF(2) is the sum of what it makes of each bit."""
    columns = [function(1 << bit) for bit in range(width)]
    return Cat(Cat(key[bit] for bit, column in enumerate(columns) if column >> row & 1).xor()
               for row in range(width))
