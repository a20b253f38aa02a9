"""Victim key: the row that left a slot, from the tag that it had there."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.records import row_key
from ..hashing.xorshift_hardware import unhash_key_hw
from .payloads import set_width


class VictimKey(wiring.Component):
    """Undo both hashes: the second one of its choice, then that of the key.

    Parameters
    ----------
    config : Config

    Members
    -------
    advance : In(1)
        All steps move on.
    slot : In(range(config.slots))
        The contract's number, see `bank_layouts.slot_number`.
    tag : In(config.directory_tag_width)
    key : Out(row_key(config))

    Timing
    ------
    One a cycle, `latency` cycles.
    """

    latency = 2

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "advance": In(1),
            "slot": In(range(config.slots)),
            "tag": In(config.directory_tag_width),
            "key": Out(row_key(config)),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        ways, banks = log2(c.directory_ways), log2(c.banks)
        hashed, rest = Signal(c.bank_key_width), Signal(c.bank_key_width, reset_less=True)
        bank = Signal(banks, reset_less=True)
        set_ = self.slot[ways + banks:][:set_width(c)]
        m.d.comb += hashed.eq(Cat(set_[:c.bank_key_width - c.directory_tag_width], self.tag))
        second = self.slot[-1] if c.directory_choices == 2 else 0
        with m.If(self.advance):
            m.d.sync += [
                bank.eq(self.slot[ways:]),
                rest.eq(Mux(second, unhash_key_hw(hashed, 1, c.bank_key_width), hashed)),
                self.key.eq(unhash_key_hw(Cat(bank, rest), 0, c.key_width)),
            ]
        return m
