"""Combinational helpers on bits and one-hot vectors, and a delay line."""

from functools import reduce
from operator import or_

from amaranth import Cat, Const, Mux, Signal
from amaranth.hdl import Shape

LUT_INPUTS = 6  # of a large FPGA


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


def popcount(bits):
    """Return the number of bits that are set."""
    return prefix_popcount(bits)[1]


def prefix_popcount(bits):
    """Return, for each bit, the number of bits set below it; and the number of all bits set.

    Timing: counts of `LUT_INPUTS` bits are logic, and one carry chain adds up to three of them.
    """
    bits, counts, groups = list(bits), [], []
    for at in range(0, len(bits), LUT_INPUTS):
        group = bits[at:at + LUT_INPUTS]
        counts += [_add_counts([*groups, _few_set(group[:place])]) for place in range(len(group))]
        groups.append(_few_set(group))
    return counts, _add_counts(groups)


def _full_add(one, two, three):
    """Sum and carry of three bits."""
    return one ^ two ^ three, one & two | three & (one ^ two)


def _few_set(bits):
    """The number of set bits among up to `LUT_INPUTS`."""
    padded = [*bits, *[Const(0, 1)] * (LUT_INPUTS - len(bits))]
    (low, low_carry), (high, high_carry) = _full_add(*padded[:3]), _full_add(*padded[3:])
    carry = low & high
    return Cat(low ^ high, *_full_add(low_carry, high_carry, carry))[
        :max(1, len(bits).bit_length())]


def _add_counts(counts):
    """The sum of some numbers."""
    while len(counts) > 2:
        width = max(len(count) for count in counts[:3])
        columns = [_full_add(*bits) for bits in zip(
            *(Cat(count, Const(0, width))[:width] for count in counts[:3]), strict=True)]
        sums, carries = zip(*columns, strict=True)
        counts = [Cat(sums), Cat(Const(0, 1), carries), *counts[3:]]
    return add_up(counts)


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
