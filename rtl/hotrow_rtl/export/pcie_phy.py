"""A program that writes the Verilog of LitePCIe's PHY with its stream as pins; `nitefury` runs it.

The card's clock comes from the PHY's MMCM, or, if the description has no frequency for it, from
outside with a reset. The PHY has the crossing between it and the user clock of the hard block:
FIFOs with Gray counters, in both directions.
"""

import argparse
import json
from pathlib import Path

from litepcie.phy.s7pciephy import S7PCIEPHY
from litex.build.generic_platform import Pins, Subsignal
from litex.build.xilinx.platform import XilinxPlatform
from migen import (
    Cat,
    ClockDomain,
    ClockSignal,
    If,
    Module,
    Mux,
    Replicate,
    ResetSignal,
    Signal,
)
from migen.genlib.cdc import MultiReg
from migen.genlib.resetsync import AsyncResetSynchronizer


def pins(lanes, width, own_clock, static, master):
    """The pins of the module."""
    stream = [("dat", width), ("be", width // 8), ("last", 1), ("valid", 1), ("ready", 1)]
    return [
        ("clk", 0, Pins(1)), ("rst", 0, Pins(1)), ("interrupt", 0, Pins(1)),
        ("pcie", 0, *(Subsignal(name, Pins(1)) for name in ("rst_n", "clk_p", "clk_n")),
         *(Subsignal(name, Pins(lanes)) for name in ("rx_p", "rx_n", "tx_p", "tx_n"))),
        *((way, 0, *(Subsignal(name, Pins(bits)) for name, bits in stream))
          for way in ("sink", "source")),
        *((name, 0, Pins(16)) for name in static), (master, 0, Pins(1)),
        *((name, 0, Pins(1)) for name in (() if own_clock else ("user_rst", "link_rst"))),
    ]


class Enables(Module):
    """Byte enables of the packets from the link: as many double words as their headers say.

    On 128 bits the hard block enables all of the last beat; LitePCIe makes two beats of 64 bits of
    it, and enables the lower half only of the last beat of a packet that it shifted.

    Parameters
    ----------
    stream : Record
        With dat, last, valid, ready.
    """

    def __init__(self, stream):
        dwords = len(stream.dat) // 32
        length, has_data, is_long, digest = (
            stream.dat[:10], stream.dat[30], stream.dat[29], stream.dat[15])
        first, rest, left = Signal(reset=1), Signal(12), Signal(12)  # in double words
        self.be = Signal(4 * dwords)
        self.comb += [
            left.eq(rest),
            If(first, left.eq(3 + is_long + digest
                              + Mux(has_data, Mux(length == 0, 1024, length), 0))),
            self.be.eq(Cat(*[Replicate(left > lane, 4) for lane in range(dwords)])),
        ]
        self.sync += If(stream.valid & stream.ready, first.eq(stream.last), rest.eq(0),
                        If(left > dwords, rest.eq(left - dwords)))


class Messages(Module):
    """A message for each rising edge of the interrupt; edges before it is accepted share it.

    Parameters
    ----------
    interrupt : Signal
    message : Record
        With valid and ready.
    """

    def __init__(self, interrupt, message):
        before = Signal()
        self.sync += [before.eq(interrupt), If(message.ready, message.valid.eq(0)),
                      If(interrupt & ~before, message.valid.eq(1))]


class Core(Module):
    """The PHY, the clock of the card, and the interrupt of the hard block."""

    def __init__(self, platform, description):
        width, clock_hz = description["data_width"], description["clock_hz"]
        static = description["static"]
        master = description["master"]
        platform.add_extension(pins(description["lanes"], width, clock_hz is not None, static,
                                    master))
        self.clock_domains.cd_sys = ClockDomain()
        self.submodules.phy = phy = S7PCIEPHY(
            platform, platform.request("pcie"), data_width=width, pcie_data_width=128,
            bar0_size=description["bar0_size"])
        if clock_hz is not None:
            phy.mmcm.create_clkout(self.cd_sys, clock_hz, with_reset=False)
            reset = ~phy.mmcm.locked | ResetSignal("pcie")
            self.comb += platform.request("clk").eq(ClockSignal("sys"))
        else:
            reset = platform.request("user_rst") | ResetSignal("pcie")
            self.comb += [ClockSignal("sys").eq(platform.request("clk")),
                          platform.request("link_rst").eq(ResetSignal("pcie"))]
        self.specials += AsyncResetSynchronizer(self.cd_sys, reset)
        self.comb += platform.request("rst").eq(ResetSignal("sys"))
        for way, given in (("sink", True), ("source", False)):
            stream, pads = getattr(phy, way), platform.request(way)
            for name in ("dat", "be", "last", "valid") if given else ("dat", "last", "valid"):
                inner, outer = getattr(stream, name), getattr(pads, name)
                self.comb += inner.eq(outer) if given else outer.eq(inner)
            self.comb += pads.ready.eq(stream.ready) if given else stream.ready.eq(pads.ready)
        self.submodules.enables = enables = Enables(phy.source)
        self.comb += pads.be.eq(enables.be)
        for name in static:
            self.specials += MultiReg(getattr(phy, name), platform.request(name), "sys")
        self.specials += MultiReg(phy._bus_master_enable.status, platform.request(master), "sys")
        self.submodules.messages = Messages(platform.request("interrupt"), phy.msi)


def main():
    """Write the module that a JSON description specifies."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("description", type=Path)
    parser.add_argument("--name", required=True)
    options = parser.parse_args()
    description = json.loads(options.description.read_text())
    platform = XilinxPlatform(description["device"], [], toolchain="vivado")
    core = Core(platform, description)
    platform.build(core, build_dir="gateware", build_name=options.name, run=False)


if __name__ == "__main__":
    main()
