"""Set index: sets and tags of a row in its bank, from its key and the part of its table."""

from amaranth import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...interfaces.table_bounds import partition, partitioned_set
from ..hashing.xorshift_hardware import hash_key_hw
from .payloads import slot_place


class SlotSets(wiring.Component):
    """Hash a row once per choice, and return set and tag of each hash.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    enable : In(1)
        Register the row in this cycle.
    bank_key : In(config.bank_key_width)
        See `hashing.row_location`.
    parts_log2, part : In
        The part of the directory that serves the table, see `partition`.
    places : Out(ArrayLayout(slot_place(config), config.directory_choices))
        Of the row registered last.

    Timing
    ------
    Latency 1 cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "enable": In(1),
            "bank_key": In(config.bank_key_width),
            **{name: In(shape) for name, shape in partition(config).items()},
            "places": Out(data.ArrayLayout(slot_place(config), config.directory_choices)),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        for choice, place in enumerate(self.places):
            hashed = self.bank_key
            if choice:
                hashed = hash_key_hw(m, "hashed_key", hashed, choice, c.bank_key_width)
            set_ = partitioned_set(m, c, f"set{choice}", hashed, self.parts_log2, self.part)
            with m.If(self.enable):
                m.d.sync += [
                    place.set.eq(set_),
                    place.tag.eq(hashed[c.bank_key_width - c.directory_tag_width:]),
                ]
        return m
