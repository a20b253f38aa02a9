"""How far behind another request of its set a request to a bank is."""

from amaranth import Cat, Signal


def near(m, name, distance, set_, asks, entering_set, enters):
    """Which of the last `distance` - 1 cycles, this one first, had a request of the same set.

    Parameters
    ----------
    m : Module
    name : str
        Of the sets, for the signals.
    distance : int
        Cycles from a request to the next of its set.
    set_, asks : Value
        Set of a request that comes, and whether it has one.
    entering_set, enters : Value
        Set of the request that enters in this cycle, if one does that later ones must mind.

    Returns
    -------
    Value
        `distance` - 1 bits.
    """
    recent = [Signal.like(entering_set, name=f"{name}_set{age}", reset_less=True)
              for age in range(1, distance - 1)]
    going = Signal(len(recent), name=f"{name}_going", reset_less=True)
    m.d.sync += [
        Cat(recent).eq(Cat(entering_set, *recent)),
        going.eq(Cat(enters, going)),
    ]
    return Cat(asks & here & (each == set_)
               for here, each in zip((enters, *going), (entering_set, *recent)))
