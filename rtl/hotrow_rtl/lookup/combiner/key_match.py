"""Key matches: which of many keys a lookup's key equals."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class KeyMatches(wiring.Component):
    """Compare one key with each of `count` others.

    Parameters
    ----------
    key_width, count : int

    Members
    -------
    key : In(key_width)
    keys : In(count * key_width)
        The first lowest.
    equal : Out(count)

    Timing
    ------
    Combinational.
    """

    def __init__(self, key_width: int, count: int):
        self.key_width, self.count = key_width, count
        super().__init__({
            "key": In(key_width),
            "keys": In(count * key_width),
            "equal": Out(count),
        })

    def elaborate(self, platform):
        m = Module()
        # Bit by bit: what is given a whole `Cat` becomes a port for each part of it, whose names
        # differ from instance to instance.
        for number in range(self.count):
            other = self.keys.word_select(number, self.key_width)
            m.d.comb += self.equal[number].eq(self.key == other)
        return m
