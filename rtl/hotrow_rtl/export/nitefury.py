"""The accelerator on a NiteFury II or Acorn CLE-215+, a card with an Artix-7 200T, by Vivado.

LitePCIe's PHY connects the hard block to `hotrow_rtl.pcie`: the registers are BAR 0, and the
accelerator's masters read and write the host's memory in bursts. Accelerator and bridge have a
clock of the configuration's frequency; the crossing to the link's clock is in the PHY.
"""

import re
from pathlib import Path

from amaranth.hdl import Value

from ..config import Config
from ..emit.component import to_verilog
from ..emit.litex_generator import GeneratorMissing, generate
from ..emit.verilog import TOP_MODULE, emit
from ..memory.axi import AXI4Read, AXI4Write
from ..pcie.bridge import SOURCES, Bridge
from .interfaces import CONTROL, buses

PART = "xc7a200tfbg484-2"
TIMEOUT_MS = 50  # of a read; the host may change its own, which this one does not follow
_BAR_BYTES = 1 << 20  # in which the registers repeat
_TOP, _PHY, _BRIDGE = "hotrow_nitefury", "pcie_phy", "hotrow_bridge"
_GENERATOR = Path(__file__).with_name("pcie_phy.py")
MODULES = ("litepcie",)  # what the generator imports
_FOLDER = "gateware/"
# Source: the card's file in amaranth-boards.
_PINS = {
    "pcie_rst_n": ("J1",), "pcie_clk_p": ("F6",), "pcie_clk_n": ("E6",), "pcie_clkreq_n": ("G1",),
    "pcie_rx_p": ("B10", "B8", "D11", "D9"), "pcie_rx_n": ("A10", "A8", "C11", "C9"),
    "pcie_tx_p": ("B6", "B4", "D5", "D7"), "pcie_tx_n": ("A6", "A4", "C5", "C7"),
}
_MMCM = "pcie/MMCME2_ADV"  # CLKOUT4 is the card's clock
_LINK_CLOCKS = " ".join(f"{_MMCM}/CLKOUT{number}" for number in range(4))
_LANES = len(_PINS["pcie_rx_p"])


def nitefury_files(config: Config) -> dict[str, str]:
    """`hotrow_nitefury.v`, `bridge.v`, `pcie_phy.v`, `build.tcl`, `card.xdc` and the core's
    Verilog.

    Raises
    ------
    ValueError
        If LitePCIe is not installed, or the bus of the configuration is too wide for the link.
    """
    if config.bus_bytes not in (8, 16):
        raise ValueError(f"format 'nitefury' needs a bus of 8 or 16 bytes, and {config.name} has "
                         f"{config.bus_bytes}: take another preset, or set bus_bytes")
    try:
        made = generate([_GENERATOR, "--name", _PHY], MODULES, {
            "device": PART, "lanes": _LANES, "data_width": 8 * config.bus_bytes,
            "bar0_size": _BAR_BYTES, "clock_hz": 1e6 * config.clock_mhz})
    except GeneratorMissing as missing:
        raise ValueError(f"format 'nitefury' needs LitePCIe's PHY, but {missing}: "
                         "pip install 'hotrow[litepcie]'") from missing
    core, found = f"{config.name}.v", buses(config)
    return {
        f"{_TOP}.v": _wrapper(config, found), "bridge.v": _bridge(found),
        f"{_PHY}.v": made[f"{_FOLDER}{_PHY}.v"],
        "build.tcl": _script(config, core, made[f"{_FOLDER}{_PHY}.tcl"]),
        "card.xdc": _constraints(), core: emit(config)}


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


def _wrapper(config, found):
    """The top module: the PHY, the bridge and the accelerator."""
    data = 8 * config.bus_bytes
    dwords = range(config.bus_bytes // 4)
    ports = [port for bus in found for port in bus.ports]
    wires = "\n".join(f"  wire {_width(port.bits)}{port.name};" for port in ports)
    same = [f".{port.name}({port.name})" for port in ports]
    pins = ",\n".join(
        f"  {'output' if 'tx' in name or 'clkreq' in name else 'input'} wire "
        f"{_width(len(places))}{name}" for name, places in _PINS.items())
    phy = [f".{name}({name})" for name in _PINS if "clkreq" not in name]
    phy += [f".{way}_{name}({way}_{name})" for way in ("sink", "source")
            for name in ("dat", "be", "last", "valid", "ready")]
    constant = {"credits": f"{len(SOURCES)}'d{(1 << len(SOURCES)) - 1}",
                "timeout": f"32'd{1000 * config.clock_mhz * TIMEOUT_MS}", "interrupt": "1'b0",
                "msi_enable": "1'b0", "msi_address": "64'd0", "msi_data": "16'd0",
                "restart": "1'b0", "clear_error": "1'b0", "error": ""}
    bridge = [f".{name}({value})" for name, value in constant.items()]
    sent = ", ".join(f"{{4{{sent[{data + lane}]}}}}" for lane in reversed(dwords))
    kept = ", ".join(f"source_be[{4 * lane}]" for lane in reversed(dwords))
    joined = ",\n    "
    return f"""\
// hotrow on a NiteFury II: written by `hotrow generate --format nitefury`.
module {_TOP} (
{pins}
);
  assign pcie_clkreq_n = 1'b0;
  wire clk, rst, interrupt;
  wire [15:0] identity, max_read_bytes, max_payload_bytes;
  wire [{data - 1}:0] sink_dat, source_dat;
  wire [{config.bus_bytes - 1}:0] sink_be, source_be;
  wire sink_last, sink_valid, sink_ready, source_last, source_valid, source_ready;
  // A beat: its data, a bit for each double word, whether it is the last one.
  wire [{data + len(dwords)}:0] sent;
  wire [{data + len(dwords)}:0] received = {{source_last, {kept}, source_dat}};
  assign sink_dat = sent[{data - 1}:0];
  assign sink_be = {{{sent}}};
  assign sink_last = sent[{data + len(dwords)}];
{wires}
  {_PHY} pcie (
    .clk(clk), .rst(rst), .interrupt(interrupt), .id(identity),
    .max_request_size(max_read_bytes), .max_payload_size(max_payload_bytes),
    {joined.join(phy)});
  {_BRIDGE} bridge (
    .clk(clk), .rst(rst), .identity(identity),
    .max_read_bytes(max_read_bytes), .max_payload_bytes(max_payload_bytes),
    .sent_payload(sent), .sent_valid(sink_valid), .sent_ready(sink_ready),
    .received_payload(received), .received_valid(source_valid), .received_ready(source_ready),
    {joined.join(bridge + same)});
  {TOP_MODULE} core (
    .clk(clk), .rst(rst), .interrupt(interrupt),
    {joined.join(same)});
endmodule
"""


def _width(bits):
    return f"[{bits - 1}:0] " if bits > 1 else ""


def _script(config, core, generated):
    """The build script; the settings of the PCIe hard block are LitePCIe's."""
    hard_block = re.search(r"^create_ip .*?^synth_ip \$obj$", generated, re.M | re.S)[0]
    sources = " ".join(f"[file join $here {name}]" for name in (
        f"{_TOP}.v", "bridge.v", f"{_PHY}.v", core))
    return f"""\
# The bitstream of hotrow, configuration {config.name}, for a NiteFury II or Acorn CLE-215+.
#   vivado -mode batch -source build.tcl -tclargs ?part?
# Written by `hotrow generate --format nitefury`.
set part [expr {{[llength $argv] > 0 ? [lindex $argv 0] : "{PART}"}}]
set here [file dirname [file normalize [info script]]]
create_project -in_memory -part $part
read_verilog -sv [list {sources}]
read_xdc [file join $here card.xdc]
{hard_block}
synth_design -top {_TOP} -part $part
opt_design
place_design
route_design
report_utilization -hierarchical -hierarchical_depth 3 -file utilization.txt
report_timing_summary -file timing.txt
write_bitstream -force {_TOP}.bit
"""


def _constraints():
    lines = ["# The card's pins; the hard block determines those of the transceivers."]
    for name, places in _PINS.items():
        for number, place in enumerate(places):
            port = f"{name}[{number}]" if len(places) > 1 else name
            lines.append(f"set_property PACKAGE_PIN {place} [get_ports {{{port}}}]")
    lines += [f"set_property IOSTANDARD LVCMOS33 [get_ports {name}]"
              for name in ("pcie_rst_n", "pcie_clkreq_n")]
    lines += ["set_property PULLUP true [get_ports pcie_rst_n]",
              "create_clock -name pcie_clk -period 10.000 [get_ports pcie_clk_p]",
              "# The card's clock and those of the link meet in FIFOs and synchronizers only.",
              "set_clock_groups -asynchronous "
              f"-group [get_clocks -of_objects [get_pins {_MMCM}/CLKOUT4]] "
              f"-group [get_clocks -of_objects [get_pins {{{_LINK_CLOCKS}}}]]",
              "set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]",
              "set_property CFGBVS VCCO [current_design]",
              "set_property CONFIG_VOLTAGE 3.3 [current_design]"]
    return "\n".join([*lines, ""])
