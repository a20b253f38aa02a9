"""Pipelined minimum tree."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import log2


def candidate(number, payload) -> data.StructLayout:
    """A `number`, if `present`, with a `payload`; both widths in bits."""
    return data.StructLayout({"payload": payload, "number": number, "present": 1})


class MinTree(wiring.Component):
    """Find the lowest number that is present; on a tie the lowest index wins.

    Parameters
    ----------
    number, payload : int
        Bits of a number and of its payload.
    count : int
        Number of candidates, a power of two.

    Attributes
    ----------
    candidates : In(ArrayLayout(candidate, count))
    least : Out(candidate)
        Not `present` if no candidate is.
    index : Out(range(count))
        Index of `least`.

    Timing
    ------
    One set of candidates a cycle; `latency` = log2(count) cycles, one comparison each.
    """

    def __init__(self, number, payload, count):
        self.count, self.latency = count, log2(count)
        self._shape = candidate(number, payload)
        super().__init__({
            "candidates": In(data.ArrayLayout(self._shape, count)),
            "least": Out(self._shape),
            "index": Out(range(count)),
        })

    def elaborate(self, platform):
        m = Module()
        level = [(self.candidates[index], Const(0, 0)) for index in range(self.count)]
        while len(level) > 1:
            winners = []
            for (low, low_index), (high, high_index) in zip(level[::2], level[1::2], strict=True):
                name = f"{len(level) // 2}_{len(winners)}"
                winner = Signal(self._shape, name=f"winner_{name}", reset_less=True)
                index = Signal(len(low_index) + 1, name=f"index_{name}", reset_less=True)
                high_wins = high.present & (~low.present | (high.number < low.number))
                m.d.sync += [
                    winner.eq(Mux(high_wins, high.as_value(), low.as_value())),
                    index.eq(Cat(Mux(high_wins, high_index, low_index), high_wins)),
                ]
                winners.append((winner, index))
            level = winners
        ((least, index),) = level
        m.d.comb += [self.least.eq(least), self.index.eq(index)]
        return m
