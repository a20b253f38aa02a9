"""Combinational helpers on bits and one-hot vectors, and a delay line."""

from functools import reduce
from operator import or_

from amaranth import Cat, Const, Mux, Signal
from amaranth.hdl import Shape


def onehot_mux(select, values):
    """Return the value whose bit of `select` is set, or 0 if no bit is set.

    Parameters
    ----------
    select : bits
        At most one is set.
    values : sequence of Value
        One per bit of `select`.
    """
    return reduce(or_, (Mux(bit, value, 0) for bit, value in zip(select, values, strict=True)))


def onehot_to_index(onehot):
    """Return the index of the bit that is set, or 0 if no bit is set.

    Parameters
    ----------
    onehot : bits
        At most one is set.
    """
    bits = list(onehot)
    return Cat(Cat(bit for idx, bit in enumerate(bits) if idx >> place & 1).any()
               for place in range((len(bits) - 1).bit_length()))


def saturate(value, width):
    """Return a value, or the largest number of `width` bits if the value needs more."""
    if len(value) <= width:
        return value
    return Mux(value[width:].any(), (1 << width) - 1, value)[:width]


def add_up(values):
    """Return the sum of values, by a tree."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return add_up(values[:half]) + add_up(values[half:])


def popcount(m, bits):
    """Return the number of bits that are set.

    Timing: full adders of single bits, two of which fit a level of LUTs. A chain of `+` has two
    levels for each.
    """
    return _popcount(m, list(bits), {})


def prefix_popcount(m, bits):
    """Return, for each bit, the number of bits set below it; and the number of all bits set."""
    bits, adders = list(bits), {}
    counts = [_popcount(m, bits[:place], adders) for place in range(1, len(bits) + 1)]
    return [Const(0, 1), *counts[:-1]], counts[-1]


def _popcount(m, bits, adders):
    """The number of bits that are set; `adders` has sum and carry by their two or three inputs."""
    columns, number = [bits], []
    while columns:
        column, carries = columns.pop(), []
        while len(column) > 1:
            taken, column = column[:3], column[3:]
            key = tuple(map(id, taken))
            if key not in adders:
                one, two, three = (*taken, Const(0))[:3]
                # Signals, as the simulator would repeat an expression at each of its uses.
                total, carry = adders[key] = Signal(name="bit_sum"), Signal(name="bit_carry")
                m.d.comb += [
                    total.eq(one ^ two ^ three),
                    carry.eq(one & two | (one ^ two) & three),
                ]
            column.append(adders[key][0])
            carries.append(adders[key][1])
        number += column
        columns += [carries] if carries else []
    return Cat(number)


def prefix_or(bits):
    """Return, for each bit, whether it or a lower one is set."""
    for step in (1 << power for power in range((len(bits) - 1).bit_length())):
        bits = (bits | bits << step)[:len(bits)]
    return bits


def last_set(flags):
    """Return a one-hot vector with the highest bit that is set."""
    highest = [flag & ~flags[idx + 1:].any() for idx, flag in enumerate(flags[:-1])]
    return Cat(*highest, flags[-1])


def delay(m, value, cycles, name):
    """Return `value` delayed by 0, 1, ..., `cycles` cycles, in registers without reset."""
    values = [value]
    for age in range(cycles):
        register = Signal(Shape.cast(value.shape()), name=f"{name}_{age}", reset_less=True)
        m.d.sync += register.eq(values[-1])
        values.append(register)
    return values
