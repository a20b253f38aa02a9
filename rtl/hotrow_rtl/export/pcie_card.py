"""The accelerator with its PCI Express bridge, with the stream of LitePCIe's PHY as pins."""

from dataclasses import dataclass

from amaranth.hdl import Value

from ..config import Config
from ..emit.component import to_verilog
from ..emit.verilog import TOP_MODULE, emit
from ..memory.axi import AXI4Read, AXI4Write
from ..pcie.bridge import Bridge
from .interfaces import CONTROL, buses

CARD_MODULE = "hotrow_card"
TIMEOUT_MS = 50  # of a read; the host may change its own, which this one does not follow
STATIC = ("id", "max_request_size", "max_payload_size")  # 16 bits each, set by the host once
MASTER = "bus_master"  # 1 bit: the host lets the card send requests
STREAM = ("dat", "be", "last", "valid", "ready")  # of the PHY's `sink` and `source`
_BRIDGE = "hotrow_bridge"
HOST = "host_"  # prefix of the names of buses between a memory of the card and the bridge


@dataclass(frozen=True)
class CardMemory:
    """A module between the accelerator's masters and the bridge.

    Parameters
    ----------
    module : str
        With clk, rst, the ports of the masters, the same ports to the bridge, with `HOST` before
        their names, and `pins`.
    verilog : str
        Its text.
    pins : tuple of (str, int, str)
        Direction, bits and name of each further port, which is a pin of the card, too.
    """

    module: str
    verilog: str
    pins: tuple = ()


def check_bus(config: Config) -> None:
    """Raise ValueError if the bus of the configuration is too wide for the link."""
    if config.bus_bytes not in (8, 16):
        raise ValueError(f"the bridge to PCI Express needs a bus of 8 or 16 bytes, and "
                         f"{config.name} has {config.bus_bytes}: take another preset, or set "
                         "bus_bytes")


def card_files(config: Config, memory: CardMemory | None = None,
               core: str | None = None) -> dict[str, str]:
    """`card.v`, `bridge.v`, the core's Verilog, and `memory.v` if the card has a memory.

    Parameters
    ----------
    config : Config
    memory : CardMemory, optional
    core : str, optional
        The core's Verilog if it was emitted before.

    Raises
    ------
    ValueError
        See `check_bus`.
    """
    check_bus(config)
    found = buses(config)
    return {"card.v": _card(config, found, memory), "bridge.v": _bridge(found),
            f"{config.name}.v": core or emit(config),
            **({"memory.v": memory.verilog} if memory else {})}


def between_masters(make, name: str, found: list, prefixes: tuple = ("",)) -> str:
    """Verilog of a component at the accelerator's masters, with the core's port names.

    Parameters
    ----------
    make : callable
        Given the signatures of the masters that read and of those that write, returns a component
        with members `read_0`, ... and `write_0`, ... for them.
    name : str
        Of the module.
    found : list of Bus
        The accelerator's interfaces.
    prefixes : tuple of str
        Of the names of such members; a component may have several of each.
    """
    masters = [bus for bus in found if bus.master]
    readers, writers = ([bus for bus in masters if getattr(bus, half)]
                        for half in ("reads", "writes"))
    component = make([_signature(AXI4Read, bus, "ARID") for bus in readers],
                     [_signature(AXI4Write, bus, "AWID") for bus in writers])
    names = {f"{prefix}{kind}_{n}": prefix + bus.name for prefix in prefixes
             for kind, of_kind in (("read", readers), ("write", writers))
             for n, bus in enumerate(of_kind)}
    names["registers"] = CONTROL
    ports = {"_".join([names.get(path[0], path[0]), *map(str, path[1:])]):
             (Value.cast(value), None)
             for path, _, value in component.signature.flatten(component)}
    return to_verilog(component, name, ports)


def _bridge(found):
    """Verilog of the bridge from the accelerator to the PHY."""
    [control] = [bus for bus in found if bus.name == CONTROL]
    return between_masters(lambda reads, writes: Bridge(reads, writes, control.address_bits),
                           _BRIDGE, found)


def _signature(kind, bus, id_signal):
    [bits] = [port.bits for port in bus.ports if port.signal == id_signal]
    return kind(address_width=bus.address_bits, bus_bytes=bus.data_bits // 8, id_width=bits)


def _card(config, found, memory):
    """The module that joins bridge and accelerator, and a memory of the card."""
    data = 8 * config.bus_bytes
    dwords = range(config.bus_bytes // 4)
    ports = [port for bus in found for port in bus.ports]
    mastered = [port for bus in found if bus.master for port in bus.ports] if memory else []
    wires = "\n".join(f"  wire {width(port.bits)}{prefix}{port.name};" for prefix, some in (
        ("", ports), (HOST, mastered)) for port in some)
    same = [f".{port.name}({port.name})" for port in ports]
    to_host = [f".{port.name}({HOST if port in mastered else ''}{port.name})" for port in ports]
    timeout = 1000 * config.clock_mhz * TIMEOUT_MS
    sent = ", ".join(f"{{4{{sent[{data + lane}]}}}}" for lane in reversed(dwords))
    kept = ", ".join(f"source_be[{4 * lane}]" for lane in reversed(dwords))
    joined, between = ",\n    ", ""
    pins = "".join(f",\n  {direction} wire {width(bits)}{name}"
                   for direction, bits, name in memory.pins) if memory else ""
    if memory:
        between = f"""\
  {memory.module} memory (
    .clk(clk), .rst(rst),
    {joined.join([f".{prefix}{port.name}({prefix}{port.name})" for prefix in ("", HOST)
                  for port in mastered]
                 + [f".{name}({name})" for *_, name in memory.pins])});
"""
    return f"""\
// The accelerator and its bridge to PCI Express; the streams are those of LitePCIe's PHY.
module {CARD_MODULE} (
  input wire clk,
  input wire rst,
  output wire interrupt,
  input wire [15:0] id,
  input wire [15:0] max_request_size,
  input wire [15:0] max_payload_size,
  input wire {MASTER},
  output wire [{data - 1}:0] sink_dat,
  output wire [{config.bus_bytes - 1}:0] sink_be,
  output wire sink_last,
  output wire sink_valid,
  input wire sink_ready,
  input wire [{data - 1}:0] source_dat,
  input wire [{config.bus_bytes - 1}:0] source_be,
  input wire source_last,
  input wire source_valid,
  output wire source_ready{pins}
);
  // A beat: its data, a bit for each double word, whether it is the last one.
  wire [{data + len(dwords)}:0] sent;
  wire [{data + len(dwords)}:0] received = {{source_last, {kept}, source_dat}};
  assign sink_dat = sent[{data - 1}:0];
  assign sink_be = {{{sent}}};
  assign sink_last = sent[{data + len(dwords)}];
{wires}
  {_BRIDGE} bridge (
    .clk(clk), .rst(rst), .identity(id), .master({MASTER}), .timeout(32'd{timeout}),
    .max_read_bytes(max_request_size), .max_payload_bytes(max_payload_size),
    .sent_payload(sent), .sent_valid(sink_valid), .sent_ready(sink_ready),
    .received_payload(received), .received_valid(source_valid), .received_ready(source_ready),
    {joined.join(to_host)});
{between}\
  {TOP_MODULE} core (
    .clk(clk), .rst(rst), .interrupt(interrupt),
    {joined.join(same)});
endmodule
"""


def width(bits: int) -> str:
    """The range of a wire's bits in Verilog."""
    return f"[{bits - 1}:0] " if bits > 1 else ""
