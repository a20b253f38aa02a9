"""Restart register: a restart for one unit, a cycle late, from a flip-flop of the unit's own."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class RestartRegister(wiring.Component):
    """Pass a restart on in the next cycle.

    A pulse that resets thousands of registers all over the device takes longer to get there than a
    cycle has. Here it gets to the units first and from there, in the next cycle, to the registers.
    A module of its own, so that the registers of unlike units are not merged into one.

    Members
    -------
    i : In(1)
    o : Out(1)

    Timing
    ------
    Latency 1 cycle.
    """

    i: In(1)
    o: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.eq(self.i)
        return m


def restart_of(m, name, restart):
    """A signal that follows `restart` in the next cycle, for the unit of that name."""
    m.submodules[f"{name}_restart"] = register = RestartRegister()
    m.d.comb += register.i.eq(restart)
    return register.o
