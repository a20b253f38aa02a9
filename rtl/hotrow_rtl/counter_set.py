"""One set of the access counters: what a lookup does to its ways, as combinational logic.

A set is one memory word, its ways in order of arrival, the oldest first. Victims are written as
thermometers: bit j is high for the victim and every way behind it, which are the ways that move
up when the victim leaves.
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data

from .config import Config, log2


def counter_set(config: Config) -> data.ArrayLayout:
    """A way that counts zero is empty."""
    way = data.StructLayout({"count": config.counter_bits, "tag": config.counter_tag_width})
    return data.ArrayLayout(way, config.counter_ways)


def counter_place(config: Config) -> data.StructLayout:
    """A mixed row key: the number of its set, and the tag that the set keeps."""
    return data.StructLayout({
        "set": log2(config.counter_sets), "tag": config.counter_tag_width})


def resident(ways, tag):
    """One-hot: the way that counts the row with that tag."""
    return Cat((way.count != 0) & (way.tag == tag) for way in ways)


def at_most(ways, limits):
    """For each limit, the ways whose count is not above it."""
    return [Cat(way.count <= limit for way in ways) for limit in limits]


def evict(items, victim, newest):
    """The items of all ways after the victim has left and `newest` has arrived."""
    return [Mux(leaves, behind, here)
            for here, behind, leaves in zip(items, items[1:], victim)] + [newest]


def thermometer(flags):
    """High from the first flag on."""
    return Cat(flags[:number + 1].any() for number in range(len(flags)))


def least_low(low, otherwise):
    """Victim among ways of which some counts little.

    Parameters
    ----------
    low : list of Value
        As from `at_most`, for limits 0, 1, 2, ...
    otherwise : Value
        The victim if every way counts more than the last limit.
    """
    for flags in reversed(low):
        otherwise = Mux(flags.any(), thermometer(flags), otherwise)
    return otherwise


def merge_pairs(m: Module, nodes, name):
    """One level of the tree that finds the least count, the first among equals.

    A node is (count, victim thermometer of its ways); an odd one out passes.
    """
    merged = []
    for number, ((low, low_victim), (high, high_victim)) in enumerate(zip(nodes[::2], nodes[1::2])):
        count = Signal(len(low), name=f"{name}_{number}")
        victim = Signal(len(low_victim) + len(high_victim), name=f"{name}_{number}_victim")
        with m.If(low <= high):
            m.d.comb += [count.eq(low), victim.eq(Cat(low_victim, Const(-1, len(high_victim))))]
        with m.Else():
            m.d.comb += [count.eq(high), victim.eq(Cat(Const(0, len(low_victim)), high_victim))]
        merged.append((count, victim))
    return merged + nodes[len(nodes) & ~1:]


class SetUpdate:
    """A lookup's effect on its set, from registered decisions.

    Parameters
    ----------
    m : Module
    config : Config
    word : View(counter_set(config))
    low : list of Value
        `at_most` of the word for the limits 0, 1, 2, ...
    tag, hit, match, victim : Value
        The row's tag; whether it is resident, in which way, and which way leaves otherwise.

    Members
    -------
    word, low : the same after the lookup
    """

    def __init__(self, m, config, word, low, tag, hit, match, victim):
        self.word = Signal(counter_set(config), name="updated")
        self.low = [Signal(config.counter_ways, name=f"updated_low{limit}")
                    for limit in range(len(low))]
        saturated = Cat(way.count.all() for way in word)
        with m.If(hit):
            for number, (before, after) in enumerate(zip(word, self.word)):
                grows = match[number] & ~saturated[number]
                m.d.comb += [after.tag.eq(before.tag), after.count.eq(before.count + grows)]
            for below, flags, after in zip([0, *low], low, self.low):
                m.d.comb += after.eq(match & below | ~match & flags)
        with m.Else():
            ways = [way.as_value() for way in word]
            newest = Cat(Const(1, config.counter_bits), tag)
            m.d.comb += [
                self.word.as_value().eq(Cat(evict(ways, victim, newest))),
                [after.eq(Cat(evict(flags, victim, Const(limit >= 1, 1))))
                 for limit, (flags, after) in enumerate(zip(low, self.low))],
            ]
