"""The accelerator on a NiteFury II or Acorn CLE-215+, a card with an Artix-7 200T, by Vivado.

LitePCIe connects it to the host: the registers are a window of BAR 0, and the accelerator accesses
the host's memory through LitePCIe's 32-bit AXI-Lite port, with a PCIe request for every four bytes.
LitePCIe's burst port would be faster, but it writes bytes without a strobe, and answers a write
before a later read is sure to return the data.
"""

import re

from amaranth.hdl import Value

from ..config import Config
from ..emit.component import to_verilog
from ..emit.litex_generator import GeneratorMissing, generate
from ..emit.verilog import TOP_MODULE, emit
from ..memory.axi import AXI4Read, AXI4Write
from ..memory.axi_to_axilite import AXIToAXILite
from .interfaces import CONTROL, buses

PART = "xc7a200tfbg484-2"
REGISTERS_AT = 1 << 16  # offset in BAR 0, after LitePCIe's registers
ADDRESS_WIDTH = 32  # of the host's memory at LitePCIe's port
_BAR_BYTES = 1 << 20
_TOP, _PCIE, _BRIDGE = "hotrow_nitefury", "litepcie_core", "hotrow_dwords"
MODULES = ("litepcie",)  # what the generator imports
_FOLDER = "build/gateware/"
# Source: the card's file in amaranth-boards.
_PINS = {
    "pcie_rst_n": ("J1",), "pcie_clk_p": ("F6",), "pcie_clk_n": ("E6",), "pcie_clkreq_n": ("G1",),
    "pcie_rx_p": ("B10", "B8", "D11", "D9"), "pcie_rx_n": ("A10", "A8", "C11", "C9"),
    "pcie_tx_p": ("B6", "B4", "D5", "D7"), "pcie_tx_n": ("A6", "A4", "C5", "C7"),
}
_LANES = len(_PINS["pcie_rx_p"])


def nitefury_files(config: Config) -> dict[str, str]:
    """`hotrow_nitefury.v`, `bridge.v`, `litepcie_core.v` and its ROM, `build.tcl`, `card.xdc` and
    the core's Verilog.

    Raises
    ------
    ValueError
        If LitePCIe's generator is not installed.
    """
    try:
        made = generate(["-m", "litepcie.gen"], MODULES, {
            "phy": "S7PCIEPHY", "phy_device": PART, "phy_lanes": _LANES, "phy_data_width": 128,
            "phy_bar0_size": _BAR_BYTES, "clk_freq": 125e6, "mmap": True,
            "mmap_base": REGISTERS_AT, "mmap_size": 1 << 16, "mmap_slave": True,
            "dma_channels": 0, "msi_irqs": 1})
    except GeneratorMissing as missing:
        raise ValueError(f"format 'nitefury' needs LitePCIe's generator, but {missing}: "
                         "pip install 'hotrow[litepcie]'") from missing
    core, rom = f"{config.name}.v", f"{_PCIE}_mem.init"
    return {
        f"{_TOP}.v": _wrapper(buses(config)), "bridge.v": _bridge(buses(config)),
        f"{_PCIE}.v": made[f"{_FOLDER}{_PCIE}.v"], rom: _undated(made[_FOLDER + rom]),
        "build.tcl": _script(config, core, made[f"{_FOLDER}{_PCIE}.tcl"]),
        "card.xdc": _constraints(), core: emit(config)}


def _undated(rom):
    """LitePCIe's identification ROM, a byte to the line, with zeros in place of the date."""
    date = re.search(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", bytes.fromhex(rom))
    octets = rom.splitlines(keepends=True)
    octets[slice(*date.span())] = ["00\n"] * len(date[0])
    return "".join(octets)


def _bridge(found):
    """Verilog of the bridge from the masters to the host, with the core's port names."""
    masters = [bus for bus in found if bus.master]
    readers, writers = ([bus for bus in masters if getattr(bus, half)]
                        for half in ("reads", "writes"))
    bridge = AXIToAXILite([_signature(AXI4Read, bus, "ARID") for bus in readers],
                          [_signature(AXI4Write, bus, "AWID") for bus in writers], ADDRESS_WIDTH)
    names = {**{f"read_{n}": bus.name for n, bus in enumerate(readers)},
             **{f"write_{n}": bus.name for n, bus in enumerate(writers)}, "bus": "host"}
    ports = {f"{names[member]}_{name}": (Value.cast(value), None)
             for (member, name), _, value in bridge.signature.flatten(bridge)}
    return to_verilog(bridge, _BRIDGE, ports)


def _signature(kind, bus, id_signal):
    [bits] = [port.bits for port in bus.ports if port.signal == id_signal]
    return kind(address_width=bus.address_bits, bus_bytes=bus.data_bits // 8, id_width=bits)


def _wrapper(found):
    """The top module: PCI Express, the accelerator and the bridge between them."""
    wires, core, bridge = [], [], []
    for bus in found:
        for port in bus.ports:
            wires.append(f"  wire {_width(port.bits)}{port.name};")
            core.append(f".{port.name}({port.name})")
            if bus.master:
                bridge.append(f".{port.name}({port.name})")
    lite = [port for bus in found if bus.name == CONTROL for port in bus.ports]
    registers, host = [], []
    for port in lite:
        signal = port.signal.lower()
        bits = 32 if signal.endswith("addr") else port.bits
        wires.append(f"  wire {_width(bits)}registers_{signal};")
        wires.append(f"  wire {_width(bits)}host_{signal};")
        registers.append(f".mmap_axi_lite_{signal}(registers_{signal})")
        host.append(f".mmap_slave_axi_lite_{signal}(host_{signal})")
        bridge.append(f".host_{signal}(host_{signal})")
        low = _width(port.bits).strip()
        wires.append(f"  assign registers_{signal} = {port.name};" if port.output
                     else f"  assign {port.name} = registers_{signal}{low};")
    pins = ",\n".join(
        f"  {'output' if 'tx' in name or 'clkreq' in name else 'input'} wire "
        f"{_width(len(places))}{name}" for name, places in _PINS.items())
    pcie = [f".{name}({name})" for name in _PINS if "clkreq" not in name]
    wires, joined = "\n".join(wires), ",\n    "
    return f"""\
// hotrow on a NiteFury II: written by `hotrow generate --format nitefury`.
module {_TOP} (
{pins}
);
  assign pcie_clkreq_n = 1'b0;
  wire clk, rst, interrupt;
{wires}
  {_PCIE} pcie (
    .clk(clk), .rst(rst), .msi_irqs(interrupt),
    {joined.join(pcie + registers + host)});
  {_BRIDGE} bridge (
    .clk(clk), .rst(rst),
    {joined.join(bridge)});
  {TOP_MODULE} core (
    .clk(clk), .rst(rst), .interrupt(interrupt),
    {joined.join(core)});
endmodule
"""


def _width(bits):
    return f"[{bits - 1}:0] " if bits > 1 else ""


def _script(config, core, generated):
    """The build script; the settings of the PCIe hard block are LitePCIe's."""
    hard_block = re.search(r"^create_ip .*?^synth_ip \$obj$", generated, re.M | re.S)[0]
    sources = " ".join(f"[file join $here {name}]" for name in (
        f"{_TOP}.v", "bridge.v", f"{_PCIE}.v", core))
    return f"""\
# The bitstream of hotrow, configuration {config.name}, for a NiteFury II or Acorn CLE-215+.
#   vivado -mode batch -source build.tcl -tclargs ?part?
# Written by `hotrow generate --format nitefury`.
set part [expr {{[llength $argv] > 0 ? [lindex $argv 0] : "{PART}"}}]
set here [file dirname [file normalize [info script]]]
create_project -in_memory -part $part
read_verilog -sv [list {sources}]
add_files [list [file join $here {_PCIE}_mem.init]]
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
              "set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]",
              "set_property CFGBVS VCCO [current_design]",
              "set_property CONFIG_VOLTAGE 3.3 [current_design]"]
    return "\n".join([*lines, ""])
