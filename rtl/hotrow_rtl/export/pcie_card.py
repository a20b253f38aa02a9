"""The accelerator with its PCI Express bridge, with the stream of LitePCIe's PHY as pins."""

from amaranth.hdl import Value

from ..config import Config
from ..emit.component import to_verilog
from ..emit.verilog import TOP_MODULE, emit
from ..memory.axi import AXI4Read, AXI4Write
from ..pcie.bridge import SOURCES, Bridge
from .interfaces import CONTROL, buses

CARD_MODULE = "hotrow_card"
TIMEOUT_MS = 50  # of a read; the host may change its own, which this one does not follow
STATIC = ("id", "max_request_size", "max_payload_size")  # 16 bits each, set by the host once
STREAM = ("dat", "be", "last", "valid", "ready")  # of the PHY's `sink` and `source`
_BRIDGE = "hotrow_bridge"


def card_files(config: Config) -> dict[str, str]:
    """`card.v`, `bridge.v` and the core's Verilog.

    Raises
    ------
    ValueError
        If the bus of the configuration is too wide for the link.
    """
    if config.bus_bytes not in (8, 16):
        raise ValueError(f"the bridge to PCI Express needs a bus of 8 or 16 bytes, and "
                         f"{config.name} has {config.bus_bytes}: take another preset, or set "
                         "bus_bytes")
    found = buses(config)
    return {"card.v": _card(config, found), "bridge.v": _bridge(found),
            f"{config.name}.v": emit(config)}


def _bridge(found):
    """Verilog of the bridge from the accelerator to the PHY, with the core's port names."""
    masters = [bus for bus in found if bus.master]
    readers, writers = ([bus for bus in masters if getattr(bus, half)]
                        for half in ("reads", "writes"))
    [control] = [bus for bus in found if bus.name == CONTROL]
    bridge = Bridge([_signature(AXI4Read, bus, "ARID") for bus in readers],
                    [_signature(AXI4Write, bus, "AWID") for bus in writers], control.address_bits)
    names = {**{f"read_{n}": bus.name for n, bus in enumerate(readers)},
             **{f"write_{n}": bus.name for n, bus in enumerate(writers)}, "registers": CONTROL}
    ports = {"_".join([names.get(path[0], path[0]), *map(str, path[1:])]):
             (Value.cast(value), None) for path, _, value in bridge.signature.flatten(bridge)}
    return to_verilog(bridge, _BRIDGE, ports)


def _signature(kind, bus, id_signal):
    [bits] = [port.bits for port in bus.ports if port.signal == id_signal]
    return kind(address_width=bus.address_bits, bus_bytes=bus.data_bits // 8, id_width=bits)


def _card(config, found):
    """The module that joins bridge and accelerator."""
    data = 8 * config.bus_bytes
    dwords = range(config.bus_bytes // 4)
    ports = [port for bus in found for port in bus.ports]
    wires = "\n".join(f"  wire {width(port.bits)}{port.name};" for port in ports)
    same = [f".{port.name}({port.name})" for port in ports]
    constant = {"credits": f"{len(SOURCES)}'d{(1 << len(SOURCES)) - 1}",
                "timeout": f"32'd{1000 * config.clock_mhz * TIMEOUT_MS}", "interrupt": "1'b0",
                "msi_enable": "1'b0", "msi_address": "64'd0", "msi_data": "16'd0",
                "restart": "1'b0", "clear_error": "1'b0", "error": ""}
    bridge = [f".{name}({value})" for name, value in constant.items()]
    sent = ", ".join(f"{{4{{sent[{data + lane}]}}}}" for lane in reversed(dwords))
    kept = ", ".join(f"source_be[{4 * lane}]" for lane in reversed(dwords))
    joined = ",\n    "
    return f"""\
// The accelerator and its bridge to PCI Express; the streams are those of LitePCIe's PHY.
module {CARD_MODULE} (
  input wire clk,
  input wire rst,
  output wire interrupt,
  input wire [15:0] id,
  input wire [15:0] max_request_size,
  input wire [15:0] max_payload_size,
  output wire [{data - 1}:0] sink_dat,
  output wire [{config.bus_bytes - 1}:0] sink_be,
  output wire sink_last,
  output wire sink_valid,
  input wire sink_ready,
  input wire [{data - 1}:0] source_dat,
  input wire [{config.bus_bytes - 1}:0] source_be,
  input wire source_last,
  input wire source_valid,
  output wire source_ready
);
  // A beat: its data, a bit for each double word, whether it is the last one.
  wire [{data + len(dwords)}:0] sent;
  wire [{data + len(dwords)}:0] received = {{source_last, {kept}, source_dat}};
  assign sink_dat = sent[{data - 1}:0];
  assign sink_be = {{{sent}}};
  assign sink_last = sent[{data + len(dwords)}];
{wires}
  {_BRIDGE} bridge (
    .clk(clk), .rst(rst), .identity(id),
    .max_read_bytes(max_request_size), .max_payload_bytes(max_payload_size),
    .sent_payload(sent), .sent_valid(sink_valid), .sent_ready(sink_ready),
    .received_payload(received), .received_valid(source_valid), .received_ready(source_ready),
    {joined.join(bridge + same)});
  {TOP_MODULE} core (
    .clk(clk), .rst(rst), .interrupt(interrupt),
    {joined.join(same)});
endmodule
"""


def width(bits: int) -> str:
    """The range of a wire's bits in Verilog."""
    return f"[{bits - 1}:0] " if bits > 1 else ""
