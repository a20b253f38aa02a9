"""The least of several numbers, by rounds of a knock-out."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import log2


def candidate(number, payload) -> data.StructLayout:
    """A `number` of so many bits, if `present`, and `payload` bits that come with it."""
    return data.StructLayout({"payload": payload, "number": number, "present": 1})


class MinTree(wiring.Component):
    """The least number that is present; of equals the one with the lowest index.

    Parameters
    ----------
    number, payload : int
        Bits of a number, and of what comes with it.
    count : int
        Of numbers, a power of two.

    Members
    -------
    contenders : In(candidate).array(count)
    least : Out(candidate)
        Not `present` if none is.
    index : Out(range(count))
        Of the least.

    Timing
    ------
    One set of contenders a cycle, `latency` = log2(count) cycles, a comparison each.
    """

    def __init__(self, number, payload, count):
        self.count, self.latency = count, log2(count)
        self._shape = candidate(number, payload)
        super().__init__({
            "contenders": In(data.ArrayLayout(self._shape, count)),
            "least": Out(self._shape),
            "index": Out(range(count)),
        })

    def elaborate(self, platform):
        m = Module()
        standing = [(self.contenders[index], Const(0, 0)) for index in range(self.count)]
        while len(standing) > 1:
            winners = []
            for (low, low_index), (high, high_index) in zip(standing[::2], standing[1::2]):
                name = f"{len(standing) // 2}_{len(winners)}"
                winner = Signal(self._shape, name=f"winner_{name}", reset_less=True)
                index = Signal(len(low_index) + 1, name=f"index_{name}", reset_less=True)
                takes_high = high.present & (~low.present | (high.number < low.number))
                m.d.sync += [
                    winner.eq(Mux(takes_high, high.as_value(), low.as_value())),
                    index.eq(Cat(Mux(takes_high, high_index, low_index), takes_high)),
                ]
                winners.append((winner, index))
            standing = winners
        ((least, index),) = standing
        m.d.comb += [self.least.eq(least), self.index.eq(index)]
        return m
