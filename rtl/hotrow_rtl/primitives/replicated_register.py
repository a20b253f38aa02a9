"""A register per destination of a signal with a large fan-out."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class ReplicatedRegister(wiring.Component):
    """A register in a module of its own, so that synthesis does not merge equal ones.

    Timing: a restart that drives thousands of flip-flops all over the device does not arrive within
    a cycle. Each unit gets a registered copy, which drives only the flip-flops of that unit.

    Parameters
    ----------
    shape : ShapeCastable, optional
    init : optional
        Value after the device's reset.

    Attributes
    ----------
    i : In(shape)
    o : Out(shape)

    Timing
    ------
    Latency 1 cycle.
    """

    def __init__(self, shape=1, init=None):
        super().__init__({"i": In(shape), "o": Out(shape, init=init)})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.eq(self.i)
        return m


def replicated(m, name, value, init=None):
    """Return a registered copy of `value`: a submodule `name`_replica of `m`."""
    m.submodules[f"{name}_replica"] = replica = ReplicatedRegister(value.shape(), init)
    m.d.comb += replica.i.eq(value)
    return replica.o
