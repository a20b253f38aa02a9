"""The accelerator's ports by bus, with the names in its Verilog."""

from dataclasses import dataclass

from amaranth.lib.wiring import Flow

from ..config import Config
from ..emit.verilog import flat_ports
from ..host.register_block import REGISTER_ADDRESS_WIDTH
from ..top import Top

CONTROL = "s_axil"


@dataclass(frozen=True)
class Port:
    """A port of the Verilog: its direction, its bits, and its AXI signal."""

    name: str
    output: bool
    bits: int
    signal: str


@dataclass(frozen=True)
class Bus:
    """Ports of one AXI interface.

    Parameters
    ----------
    name : str
        Prefix of the ports' names.
    master : bool
    data_bits, address_bits : int
    reads, writes : bool
        The channels that the interface has.
    ports : tuple of Port
    """

    name: str
    master: bool
    data_bits: int
    address_bits: int
    reads: bool
    writes: bool
    ports: tuple


def buses(config: Config) -> list[Bus]:
    """The accelerator's interfaces: control first, then the memory ports in their order."""
    top, found = _Ports(config), {}
    for (path, member, value), name in zip(
            top.signature.flatten(top), flat_ports(top), strict=True):
        if path[0] != "interrupt":
            prefix, _, signal = name.rpartition("_")
            found.setdefault(prefix, []).append(
                Port(name, member.flow is Flow.Out, len(value), signal.upper()))
    return [_bus(config, prefix, tuple(ports)) for prefix, ports in found.items()]


def ports_of(config: Config) -> list[dict]:
    """Every port of the accelerator: `name`, `direction` ("input" or "output") and `bits`."""
    single = (("clk", False, 1), ("rst", False, 1), ("interrupt", True, 1))
    members = ((port.name, port.output, port.bits) for bus in buses(config) for port in bus.ports)
    return [{"name": name, "direction": "output" if output else "input", "bits": bits}
            for name, output, bits in (*single, *members)]


def _bus(config, prefix, ports):
    control, signals = prefix == CONTROL, {port.signal for port in ports}
    return Bus(prefix, not control, 32 if control else 8 * config.bus_bytes,
               REGISTER_ADDRESS_WIDTH if control else config.address_width,
               "ARVALID" in signals, "AWVALID" in signals, ports)


class _Ports(Top):
    """The ports of `Top`, without its contents."""

    def __new__(cls, *arguments, **named):
        ports = super().__new__(cls, *arguments, **named)
        ports._MustUse__used = True  # never elaborated, of which Amaranth would warn
        return ports
