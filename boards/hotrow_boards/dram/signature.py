"""Signatures between a card and the controller of its DRAM, seen from the card."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.memory.axi import AXI4Read, AXI4Write

CONTROL_ADDRESS_WIDTH = 14  # in 32-bit registers


class Wishbone(wiring.Signature):
    """Wishbone with classic cycles of 32 bits and word addresses.

    Source: OpenCores, Wishbone B4.
    """

    def __init__(self, address_width):
        super().__init__({
            "adr": Out(address_width), "dat_w": Out(32), "dat_r": In(32), "we": Out(1),
            "cyc": Out(1), "stb": Out(1), "ack": In(1),
        })


class DramBus(wiring.Signature):
    """A data port and the controller's registers."""

    def __init__(self, *, address_width, word_bytes):
        bus = {"address_width": address_width, "bus_bytes": word_bytes, "id_width": 1}
        super().__init__({
            "read": Out(AXI4Read(**bus)),
            "write": Out(AXI4Write(**bus)),
            "control": Out(Wishbone(CONTROL_ADDRESS_WIDTH)),
        })
