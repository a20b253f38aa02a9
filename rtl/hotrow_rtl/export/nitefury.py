"""The accelerator on a NiteFury II or Acorn CLE-215+, a card with an Artix-7 200T.

LitePCIe's PHY connects the hard block to `hotrow_rtl.pcie`: the registers are BAR 0, and the
accelerator's masters read and write the host's memory in bursts, and that of the card if it has
one. Accelerator and bridge have a clock of the configuration's frequency; the crossing to the
link's clock is in the PHY.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from ..config import Config
from ..emit.litex_generator import GeneratorMissing, generate
from .openxc7 import makefile, synthesis
from .pcie_card import CARD_MODULE, MASTER, STATIC, STREAM, CardMemory, card_files, check_bus, width

BOARD = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
_BAR_BYTES = 1 << 20  # in which the registers repeat
_TOP, _PHY = "hotrow_nitefury", "pcie_phy"
_CONSTRAINTS = "card.xdc"
_GENERATOR = Path(__file__).with_name("pcie_phy.py")
MODULES = ("litepcie",)  # what the generator imports
_FOLDER = "gateware/"
_MMCM = "pcie/MMCME2_ADV"
_CARD_CLOCK = f"[get_clocks -of_objects [get_pins {_MMCM}/CLKOUT4]]"
_LINK_CLOCKS = " ".join(f"{_MMCM}/CLKOUT{number}" for number in range(4))


@dataclass(frozen=True)
class Dram:
    """What the card's DRAM adds to the design.

    Parameters
    ----------
    memory : CardMemory
    controller : str
        Verilog of the controller, which makes the card's clock.
    instance : str
        Its instance in the top module; `link_rst` resets it, and it drives `clk` and `user_rst`.
    """

    memory: CardMemory
    controller: str
    instance: str


@dataclass(frozen=True)
class _Pins:
    direction: str
    standard: str
    places: list
    properties: list


def nitefury_files(config: Config, dram: Dram | None = None) -> dict[str, str]:
    """`hotrow_nitefury.v`, `pcie_phy.v`, what `card_files` returns, and the scripts.

    `build.tcl` is for Vivado, `Makefile` and `synthesis.ys` are for openXC7, `card.xdc` for both.

    Raises
    ------
    ValueError
        If LitePCIe is not installed, or the bus of the configuration is too wide for the link.
    """
    check_bus(config)
    parts = ("pcie", "dram") if dram else ("pcie",)
    pins = {name: _pins(text) for part in parts for name, text in BOARD["pins"][part].items()}
    try:
        made = generate([_GENERATOR, "--name", _PHY], MODULES, {
            "device": BOARD["part"], "lanes": len(pins["pcie_rx_p"].places),
            "data_width": 8 * config.bus_bytes, "bar0_size": _BAR_BYTES,
            "static": STATIC, "master": MASTER,
            "clock_hz": None if dram else 1e6 * config.clock_mhz})
    except GeneratorMissing as missing:
        raise ValueError(f"format 'nitefury' needs LitePCIe's PHY, but {missing}: "
                         "pip install 'hotrow[litepcie]'") from missing
    sources = {f"{_TOP}.v": _wrapper(config, pins, dram),
               f"{_PHY}.v": made[f"{_FOLDER}{_PHY}.v"],
               **card_files(config, dram and dram.memory),
               **({"litedram.v": dram.controller} if dram else {})}
    title = f"hotrow, {config.name}, for a {BOARD['title']}"
    return {
        **sources, "build.tcl": _script(title, sources, made[f"{_FOLDER}{_PHY}.tcl"]),
        "synthesis.ys": synthesis(_TOP, list(sources)),
        "Makefile": makefile(_TOP, BOARD["part"], _CONSTRAINTS, title),
        _CONSTRAINTS: _constraints(pins, parts)}


def _pins(text):
    direction, standard, *words = text.split()
    return _Pins(direction, standard, [word for word in words if "=" not in word],
                 [word.split("=") for word in words if "=" in word])


def _wrapper(config, pins, dram):
    """The top module: the PHY and the card, and the controller of its DRAM."""
    ports = ",\n".join(f"  {each.direction} wire {width(len(each.places))}{name}"
                       for name, each in pins.items())
    bits = {"dat": 8 * config.bus_bytes, "be": config.bus_bytes}
    both = {"clk": 1, "rst": 1, "interrupt": 1, **dict.fromkeys(STATIC, 16), MASTER: 1, **{
        f"{way}_{name}": bits.get(name, 1) for way in ("sink", "source") for name in STREAM}}
    of_dram = {name: bits for _, bits, name in dram.memory.pins} if dram else {}
    resets = ("user_rst", "link_rst") if dram else ()
    wires = "\n".join(f"  wire {width(bits)}{name};" for name, bits in {
        **both, **of_dram, **dict.fromkeys(resets, 1)}.items())
    joined = ",\n    "
    to_phy, to_card = ([f".{name}({name})" for name in (*both, *more)]
                       for more in (resets, of_dram))
    phy = [f".{name}({name})" for name in BOARD["pins"]["pcie"] if "clkreq" not in name]
    return f"""\
// hotrow on a {BOARD["title"]}: written by hotrow.
module {_TOP} (
{ports}
);
  assign pcie_clkreq_n = 1'b0;
{wires}
  {_PHY} pcie (
    {joined.join(phy + to_phy)});
  {CARD_MODULE} card (
    {joined.join(to_card)});
{dram.instance if dram else ""}endmodule
"""


def _script(title, sources, generated):
    """Vivado's script; the settings of the PCIe hard block are LitePCIe's."""
    hard_block = re.search(r"^create_ip .*?^synth_ip \$obj$", generated, re.M | re.S)[0]
    sources = " ".join(f"[file join $here {name}]" for name in sources)
    return f"""\
# The bitstream of {title}. It has not been run.
#   vivado -mode batch -source build.tcl -tclargs ?part?
set part [expr {{[llength $argv] > 0 ? [lindex $argv 0] : "{BOARD["part"]}"}}]
set here [file dirname [file normalize [info script]]]
create_project -in_memory -part $part
read_verilog -sv [list {sources}]
read_xdc [file join $here {_CONSTRAINTS}]
{hard_block}
synth_design -top {_TOP} -part $part
opt_design
place_design
route_design
report_utilization -hierarchical -hierarchical_depth 3 -file utilization.txt
report_timing_summary -file timing.txt
write_bitstream -force {_TOP}.bit
"""


def _constraints(pins, parts):
    lines = []
    for name, each in pins.items():
        properties = [*([("IOSTANDARD", each.standard)] if each.standard != "-" else []),
                      *each.properties]
        for number, place in enumerate(each.places):
            port = f"{name}[{number}]" if len(each.places) > 1 else name
            lines += [f"set_property {kind} {value} [get_ports {{{port}}}]"
                      for kind, value in (("PACKAGE_PIN", place), *properties)]
    lines += [line for part in parts for line in BOARD["constraints"][part]]
    card = "[get_clocks -include_generated_clocks clk200]" if "dram" in parts else _CARD_CLOCK
    lines += ["# The card's clock and those of the link meet in FIFOs and synchronizers only.",
              f"set_clock_groups -asynchronous -group {card} "
              f"-group [get_clocks -of_objects [get_pins {{{_LINK_CLOCKS}}}]]"]
    return "\n".join([*lines, ""])
