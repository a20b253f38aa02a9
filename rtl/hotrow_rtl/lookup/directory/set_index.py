"""Sets and tags of a row in the slot table of its bank."""

from amaranth import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...interfaces.table_bounds import partition, partitioned_set
from ..hashing.xorshift_hardware import hash_key_hw
from .payloads import set_tag


class SetIndex(wiring.Component):
    """Hash a row once for each hash choice, and take set and tag from each hash.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    enable : In(1)
        Load the row of this cycle.
    bank_key : In(config.bank_key_width)
    parts_log2, part : In
        Directory partition of the row's table; see `partition`.
    choices : Out(ArrayLayout(set_tag(config), config.directory_choices))
        Of the row loaded last.

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
            "choices": Out(data.ArrayLayout(set_tag(config), config.directory_choices)),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        for number, choice in enumerate(self.choices):
            hashed = self.bank_key
            if number:
                hashed = hash_key_hw(m, "hash_step", hashed, number, c.bank_key_width)
            set_ = partitioned_set(m, c, f"set{number}", hashed, self.parts_log2, self.part)
            with m.If(self.enable):
                m.d.sync += [
                    choice.set.eq(set_),
                    choice.tag.eq(hashed[c.bank_key_width - c.directory_tag_width:]),
                ]
        return m
