"""Hazards between requests to a bank: how long ago a request used the same set."""

from amaranth import Cat, Signal


def recent_hazards(m, name, distance, set_, valid, fire_set, fire):
    """Flag the recent cycles in which a request used the set of a new request.

    Parameters
    ----------
    m : Module
    name : str
        Prefix of the signals.
    distance : int
        Cycles between two requests of one set.
    set_, valid : Value
        Set of the new request, and whether it uses one.
    fire_set, fire : Value
        Set of the request that enters the bank in this cycle, and whether it is a hazard to later
        ones.

    Returns
    -------
    Value
        `distance` - 1 bits: bit n for the cycle n cycles before.
    """
    sets = [Signal.like(fire_set, name=f"{name}_set{age}", reset_less=True)
            for age in range(1, distance - 1)]
    fired = Signal(len(sets), name=f"{name}_fired", reset_less=True)
    m.d.sync += [
        Cat(sets).eq(Cat(fire_set, *sets)),
        fired.eq(Cat(fire, fired)),
    ]
    return Cat(valid & used & (each == set_)
               for used, each in zip((fire, *fired), (fire_set, *sets), strict=True))
