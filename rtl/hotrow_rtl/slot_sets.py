"""Where a row may lie in the slots of its bank: sets and tags from its key and its table's part."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .config import Config, log2
from .mixing_gates import mixed
from .slot_layouts import set_width, slot_place
from .table_extent import partition


class SlotSets(wiring.Component):
    """Hash a row once for each choice, and cut set and tag from each hash.

    Parameters
    ----------
    config : Config

    Members
    -------
    enable : In(1)
        Take the row in this cycle.
    rest : In(config.rest_width)
        Of the row's key, see `placement`.
    parts_log2, part : In
        The part of the directory that serves its table: see `partition`.
    places : Out(ArrayLayout(slot_place(config), config.directory_choices))
        Of the row taken last.

    Timing
    ------
    Latency 1 cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "enable": In(1),
            "rest": In(config.rest_width),
            **{name: In(shape) for name, shape in partition(config).items()},
            "places": Out(data.ArrayLayout(slot_place(config), config.directory_choices)),
        })

    def elaborate(self, platform):
        m = Module()
        c, width = self.config, set_width(self.config)
        for choice, place in enumerate(self.places):
            hashed, set_ = self.rest, Signal(width, name=f"set{choice}")
            if choice:
                hashed = mixed(m, "mixed_rest", self.rest, choice, c.rest_width)
            # The part above, the hash below, as the table divides them.
            with m.Switch(self.parts_log2):
                for parts in range(1, log2(c.directory_partitions) + 1):
                    with m.Case(parts):
                        m.d.comb += set_.eq(Cat(hashed[:width - parts], self.part[:parts]))
                with m.Default():
                    m.d.comb += set_.eq(hashed[:width])
            with m.If(self.enable):
                m.d.sync += [
                    place.set.eq(set_),
                    place.tag.eq(hashed[c.rest_width - c.directory_tag_width:]),
                ]
        return m
