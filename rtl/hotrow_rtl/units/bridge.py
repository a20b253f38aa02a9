"""The bridge from AXI4 to PCI Express by itself, with two masters of each kind."""

from ..config import Config
from ..memory.axi import AXI4Read, AXI4Write
from ..pcie.bridge import Bridge

MASTERS = 2  # of each kind
ID_WIDTH = 4
REGISTER_BITS = 12


class PcieBridge(Bridge):
    __doc__ = Bridge.__doc__

    def __init__(self, config: Config):
        bus = {"address_width": config.address_width, "bus_bytes": config.bus_bytes,
               "id_width": ID_WIDTH}
        self.config = config
        super().__init__([AXI4Read(**bus)] * MASTERS, [AXI4Write(**bus)] * MASTERS, REGISTER_BITS)
