"""AXI4 and AXI4-Lite signatures with flat member names, seen from the master.

Source: ARM IHI 0022, AMBA AXI protocol. Bursts are INCR and as wide as the bus. No master drives
their attributes, which keep their initial values.
"""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

BURST_INCR = 0b01
LENGTH_WIDTH = 8  # of AxLEN, the beats of a burst minus one
OKAY, EXOKAY, SLVERR, DECERR = range(4)
CACHE = 0b0011  # AxCACHE: normal memory, bufferable, not cached
PROT = 0b000  # AxPROT: unprivileged and secure data


class AXI4Read(wiring.Signature):
    """The AR and R channels."""

    def __init__(self, *, address_width, bus_bytes, id_width):
        self.address_width, self.bus_bytes, self.id_width = address_width, bus_bytes, id_width
        super().__init__({
            "arid": Out(id_width),
            "araddr": Out(address_width),
            "arlen": Out(LENGTH_WIDTH),
            "arsize": Out(3),
            "arburst": Out(2),
            "arcache": Out(4, init=CACHE),
            "arprot": Out(3, init=PROT),
            "arvalid": Out(1),
            "arready": In(1),
            "rid": In(id_width),
            "rdata": In(8 * bus_bytes),
            "rresp": In(2),
            "rlast": In(1),
            "rvalid": In(1),
            "rready": Out(1),
        })


class AXI4Write(wiring.Signature):
    """The AW, W and B channels."""

    def __init__(self, *, address_width, bus_bytes, id_width):
        self.address_width, self.bus_bytes, self.id_width = address_width, bus_bytes, id_width
        super().__init__({
            "awid": Out(id_width),
            "awaddr": Out(address_width),
            "awlen": Out(LENGTH_WIDTH),
            "awsize": Out(3),
            "awburst": Out(2),
            "awcache": Out(4, init=CACHE),
            "awprot": Out(3, init=PROT),
            "awvalid": Out(1),
            "awready": In(1),
            "wdata": Out(8 * bus_bytes),
            "wstrb": Out(bus_bytes),
            "wlast": Out(1),
            "wvalid": Out(1),
            "wready": In(1),
            "bid": In(id_width),
            "bresp": In(2),
            "bvalid": In(1),
            "bready": Out(1),
        })


class AXI4(wiring.Signature):
    """All five channels, of a reader and a writer with ids of their own."""

    def __init__(self, read: AXI4Read, write: AXI4Write):
        self.read, self.write, self.bus_bytes = read, write, read.bus_bytes
        super().__init__({**read.members, **write.members})


class AXI4Lite(wiring.Signature):
    """All five channels of AXI4-Lite with 32-bit data."""

    def __init__(self, *, address_width):
        self.address_width = address_width
        super().__init__({
            "awaddr": Out(address_width),
            "awprot": Out(3),
            "awvalid": Out(1),
            "awready": In(1),
            "wdata": Out(32),
            "wstrb": Out(4),
            "wvalid": Out(1),
            "wready": In(1),
            "bresp": In(2),
            "bvalid": In(1),
            "bready": Out(1),
            "araddr": Out(address_width),
            "arprot": Out(3),
            "arvalid": Out(1),
            "arready": In(1),
            "rdata": In(32),
            "rresp": In(2),
            "rvalid": In(1),
            "rready": Out(1),
        })
