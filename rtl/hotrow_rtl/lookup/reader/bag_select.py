"""First bag: of the bags of a chunk, the one that a lane belongs to."""

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...primitives.bits import onehot_mux
from .batch_descriptor import bag_name, chunk_bags, names_width


class FirstBag(wiring.Component):
    """Choose the first bag that ends after a lane.

    Parameters
    ----------
    config : Config

    Members
    -------
    after : In(chunk_bags(config))
        Whether each ends after the lane, the first bag lowest. If one does, so do all behind it.
    names : In(names_width(config))
    name : Out(bag_name(config).size)
        0 if none does.

    Timing
    ------
    Combinational.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "after": In(chunk_bags(config)),
            "names": In(names_width(config)),
            "name": Out(bag_name(config).size),
        })

    def elaborate(self, platform):
        m = Module()
        bags, size = range(chunk_bags(self.config)), bag_name(self.config).size
        first = Signal(len(bags))
        m.d.comb += [
            first.eq(self.after & ~Cat(0, self.after[:-1])),
            self.name.eq(onehot_mux(first, [self.names.word_select(bag, size) for bag in bags])),
        ]
        return m


class BagSelect(wiring.Component):
    """Choose for every lane of a word.

    Parameters
    ----------
    config : Config

    Members
    -------
    ends : In(chunk_bags(config) * config.lanes)
        As `here` and `behind` of a `piece`.
    names : In(names_width(config))
    chosen : Out(config.lanes * bag_name(config).size)
        By lane, as of `FirstBag`.

    Timing
    ------
    Combinational.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "ends": In(chunk_bags(config) * config.lanes),
            "names": In(names_width(config)),
            "chosen": Out(config.lanes * bag_name(config).size),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, size = self.config.lanes, bag_name(self.config).size
        for lane in range(lanes):
            m.submodules[f"lane{lane}"] = each = FirstBag(self.config)
            # Bit by bit, so that this is one port, the same for all.
            m.d.comb += [
                [each.after[bag].eq(self.ends[bag * lanes + lane])
                 for bag in range(chunk_bags(self.config))],
                each.names.eq(self.names),
                self.chosen.word_select(lane, size).eq(each.name),
            ]
        return m
