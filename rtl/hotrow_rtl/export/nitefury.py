"""The accelerator on a NiteFury II or Acorn CLE-215+, a card with an Artix-7 200T, by Vivado.

LitePCIe's PHY connects the hard block to `hotrow_rtl.pcie`: the registers are BAR 0, and the
accelerator's masters read and write the host's memory in bursts. Accelerator and bridge have a
clock of the configuration's frequency; the crossing to the link's clock is in the PHY.
"""

import re
from pathlib import Path

from ..config import Config
from ..emit.litex_generator import GeneratorMissing, generate
from .pcie_card import CARD_MODULE, STATIC, STREAM, card_files, width

PART = "xc7a200tfbg484-2"
_BAR_BYTES = 1 << 20  # in which the registers repeat
_TOP, _PHY = "hotrow_nitefury", "pcie_phy"
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
    """`hotrow_nitefury.v`, `pcie_phy.v`, `build.tcl`, `card.xdc` and what `card_files` returns.

    Raises
    ------
    ValueError
        If LitePCIe is not installed, or the bus of the configuration is too wide for the link.
    """
    card = card_files(config)
    try:
        made = generate([_GENERATOR, "--name", _PHY], MODULES, {
            "device": PART, "lanes": _LANES, "data_width": 8 * config.bus_bytes,
            "bar0_size": _BAR_BYTES, "clock_hz": 1e6 * config.clock_mhz})
    except GeneratorMissing as missing:
        raise ValueError(f"format 'nitefury' needs LitePCIe's PHY, but {missing}: "
                         "pip install 'hotrow[litepcie]'") from missing
    return {
        f"{_TOP}.v": _wrapper(config), f"{_PHY}.v": made[f"{_FOLDER}{_PHY}.v"],
        "build.tcl": _script(config, card, made[f"{_FOLDER}{_PHY}.tcl"]),
        "card.xdc": _constraints(), **card}


def _wrapper(config):
    """The top module: the PHY and the card."""
    pins = ",\n".join(
        f"  {'output' if 'tx' in name or 'clkreq' in name else 'input'} wire "
        f"{width(len(places))}{name}" for name, places in _PINS.items())
    bits = {"dat": 8 * config.bus_bytes, "be": config.bus_bytes}
    both = {"clk": 1, "rst": 1, "interrupt": 1, **dict.fromkeys(STATIC, 16), **{
        f"{way}_{name}": bits.get(name, 1) for way in ("sink", "source") for name in STREAM}}
    wires = "\n".join(f"  wire {width(bits)}{name};" for name, bits in both.items())
    joined = ",\n    "
    same = joined.join(f".{name}({name})" for name in both)
    phy = joined.join(f".{name}({name})" for name in _PINS if "clkreq" not in name)
    return f"""\
// hotrow on a NiteFury II: written by `hotrow generate --format nitefury`.
module {_TOP} (
{pins}
);
  assign pcie_clkreq_n = 1'b0;
{wires}
  {_PHY} pcie (
    {phy},
    {same});
  {CARD_MODULE} card (
    {same});
endmodule
"""


def _script(config, card, generated):
    """The build script; the settings of the PCIe hard block are LitePCIe's."""
    hard_block = re.search(r"^create_ip .*?^synth_ip \$obj$", generated, re.M | re.S)[0]
    sources = " ".join(f"[file join $here {name}]" for name in (
        f"{_TOP}.v", f"{_PHY}.v", *card))
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
