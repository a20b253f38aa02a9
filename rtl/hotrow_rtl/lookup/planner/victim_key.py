"""Victim key: the key of an evicted row, from its slot and tag."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.records import row_key
from ..directory.payloads import set_width
from ..hashing.xorshift_hardware import unhash_key_hw


class VictimKey(wiring.Component):
    """Invert the hash of the choice, then the hash of the key.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    enable : In(1)
        Enable of all pipeline registers.
    slot : In(range(config.slots))
        The contract's slot number, see `lookup_payloads.slot_number`.
    tag : In(config.directory_tag_width)
    key : Out(row_key(config))

    Timing
    ------
    One key a cycle, latency `latency` cycles.
    """

    latency = 2

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "enable": In(1),
            "slot": In(range(config.slots)),
            "tag": In(config.directory_tag_width),
            "key": Out(row_key(config)),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        ways, banks = log2(c.directory_ways), log2(c.banks)
        hashed, bank_key = Signal(c.bank_key_width), Signal(c.bank_key_width, reset_less=True)
        bank = Signal(banks, reset_less=True)
        set_ = self.slot[ways + banks:][:set_width(c)]
        m.d.comb += hashed.eq(Cat(set_[:c.bank_key_width - c.directory_tag_width], self.tag))
        second = self.slot[-1] if c.directory_choices == 2 else 0
        with m.If(self.enable):
            m.d.sync += [
                bank.eq(self.slot[ways:]),
                bank_key.eq(Mux(second, unhash_key_hw(hashed, 1, c.bank_key_width), hashed)),
                self.key.eq(unhash_key_hw(Cat(bank, bank_key), 0, c.key_width)),
            ]
        return m
