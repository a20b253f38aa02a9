"""Bag select: the bag of a chunk that owns each lane of a word."""

from amaranth import Cat, Signal

from ...config import Config
from ...primitives.bits import onehot_mux
from .batch_descriptor import bag_owner, chunk_bags


def lane_owners(m, config: Config, name, ends, owners):
    """Return the owner of each lane: the first bag that ends after it, or 0 if none does.

    Combinational.

    Parameters
    ----------
    m : Module
    config : Config
    name : str
        Prefix of the signals.
    ends : Value(chunk_bags(config) * config.word_lanes)
        `here` or `next` of a `piece`.
    owners : Value(owners_width(config))

    Returns
    -------
    list of Value
        A `bag_owner` by lane, as bits.
    """
    size, bags = bag_owner(config).size, range(chunk_bags(config))
    found = []
    for lane in range(config.word_lanes):
        after, first = (Signal(len(bags), name=f"{name}_{which}{lane}")
                        for which in ("after", "first"))
        m.d.comb += [
            after.eq(Cat(ends[bag * config.word_lanes + lane] for bag in bags)),
            first.eq(after & ~Cat(0, after[:-1])),
        ]
        found.append(onehot_mux(first, [owners.word_select(bag, size) for bag in bags]))
    return found
