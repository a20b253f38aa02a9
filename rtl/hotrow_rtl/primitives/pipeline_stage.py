"""One stage of a pipeline that never stalls."""

from types import SimpleNamespace

from amaranth import Signal, Value


def stage(m, name, **values):
    """Register `values` in module `m`.

    Returns
    -------
    SimpleNamespace
        The registers, each named after its value. They have no reset: the caller resets `valid`.
    """
    registers = {each: Signal(Value.cast(value).shape(), name=f"{name}_{each}", reset_less=True)
                 for each, value in values.items()}
    m.d.sync += [registers[each].eq(value) for each, value in values.items()]
    return SimpleNamespace(**registers)
