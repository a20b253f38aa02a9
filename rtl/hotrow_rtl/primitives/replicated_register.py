"""ReplicatedRegister: what must go far, passed on a cycle late, from a flip-flop near those that it is for."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class ReplicatedRegister(wiring.Component):
    """Pass a value on in the next cycle.

    A restart that resets thousands of registers all over the device takes longer to get there than
    a cycle has. Here it gets to the units first and from there, in the next cycle, to the
    registers. A module of its own, so that the registers of unlike units are not merged into one.

    Parameters
    ----------
    width : int, optional
    init : int, optional
        Its value after the device's reset.

    Members
    -------
    i : In(width)
    o : Out(width)

    Timing
    ------
    Latency 1 cycle.
    """

    def __init__(self, width: int = 1, init: int = 0):
        super().__init__({"i": In(width), "o": Out(width, init=init)})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.eq(self.i)
        return m


def replicated(m, name, value, init=0):
    """A signal that follows `value` in the next cycle, for what that name says."""
    m.submodules[f"{name}_relay"] = relay = ReplicatedRegister(len(value), init)
    m.d.comb += relay.i.eq(value)
    return relay.o
