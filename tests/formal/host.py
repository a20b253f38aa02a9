"""A model of the host for proofs."""

from amaranth import Signal
from amaranth.hdl import Assume
from hotrow_rtl.interfaces.records import region


def registered(m, config, update, ready, handle):
    """The region that the host registered under a handle; assumed to lie in the address space."""
    entry = Signal(region(config), name="registered")
    end = (update.entry.base16 << 4) + update.entry.size
    m.d.comb += Assume(~(update.enable & update.entry.valid) | (end <= 1 << config.address_width))
    with m.If(update.enable & ready & (update.index == handle)):
        m.d.sync += entry.eq(update.entry)
    return entry
