"""One stage of a pipeline that never stops."""

from types import SimpleNamespace

from amaranth import Signal, Value


def stage(m, name, **values):
    """Register `values` at a clock edge, added to module `m`; what follows sees the registers.

    Returns
    -------
    SimpleNamespace
        The registers, each by the name of its value. They have no reset: a `valid` travels apart.
    """
    registers = {each: Signal(Value.cast(value).shape(), name=f"{name}_{each}", reset_less=True)
                 for each, value in values.items()}
    m.d.sync += [registers[each].eq(value) for each, value in values.items()]
    return SimpleNamespace(**registers)
