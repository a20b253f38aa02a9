"""A program that writes the Verilog of LiteEth's MAC with ARP, IPv4 and UDP; `core` runs it.

The result differs from that of `liteeth_gen` where a card needs it: no broadcasts; no ICMP, because
an echo request with a wrong length hangs the core; no management pins; and a raw port that receives
on the card's UDP port (liteeth_gen's listens on the port that it sends to).
"""

import argparse
import json
from functools import partial
from pathlib import Path

from liteeth import gen
from liteeth import phy as phys
from litex.build.generic_platform import Pins, Subsignal
from litex.build.lattice.platform import LatticePlatform
from litex.soc.integration.builder import Builder

PINS = [
    ("sys_clock", 0, Pins(1)),
    ("sys_reset", 0, Pins(1)),
    ("rgmii_clocks", 0, Subsignal("tx", Pins(1)), Subsignal("rx", Pins(1))),
    ("rgmii", 0, *(Subsignal(f"{way}_{name}", Pins(width))
                           for way in ("rx", "tx") for name, width in (("ctl", 1), ("data", 4)))),
]
PORT = "card"
FIELDS = ("ip_address", "src_port", "dst_port", "length", "data", "last_be", "last", "valid")


def main():
    """Write the module that a JSON description specifies."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("description", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--output-dir", required=True)
    options = parser.parse_args()
    description = json.loads(options.description.read_text())
    gen.LiteEthUDPIPCore = partial(
        gen.LiteEthUDPIPCore, with_icmp=False, with_ip_broadcast=False)
    platform = LatticePlatform(description["device"], io=[], toolchain="trellis")
    platform.add_extension(PINS)
    core = gen.UDPCore(platform, {**description, "phy": phys.LiteEthECP5PHYRGMII})
    _connect_port(core, platform, description["udp_port"], description["data_width"])
    Builder(core, output_dir=options.output_dir, compile_gateware=False).build(
        build_name=options.name)


def _connect_port(core, platform, number, width):
    """Connect the streams of a UDP port to pins of the module."""
    platform.add_extension(gen.get_udp_raw_port_ios(PORT, width))
    pins, port = platform.request(PORT), core.core.udp.crossbar.get_port(number, dw=width)
    core.comb += [
        *(getattr(port.sink, name).eq(getattr(pins, f"sink_{name}")) for name in FIELDS),
        *(getattr(pins, f"source_{name}").eq(getattr(port.source, name))
          for name in (*FIELDS, "error")),
        pins.sink_ready.eq(port.sink.ready), port.source.ready.eq(pins.source_ready),
    ]


if __name__ == "__main__":
    main()
