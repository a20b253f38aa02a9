"""The NiteFury II or Acorn CLE-215+ with its DDR3 as a second memory of the card."""

from dataclasses import replace

from hotrow_rtl.config import Config, log2
from hotrow_rtl.export.nitefury import BOARD, nitefury_files
from hotrow_rtl.export.nitefury import Dram as DesignDram

from .dram.controller import MODULE, PORT, Dram, generate
from .dram.second_memory import second_memory

_DESCRIBED = dict(BOARD["dram"])
_OSCILLATOR_MHZ = _DESCRIBED.pop("oscillator_mhz")
DRAM = Dram(**_DESCRIBED)
# LiteDRAM's ports have a bit more.
_WIDER = dict.fromkeys(("arsize", "awsize"), "{{1'b0, {}}}")


def files_with_dram(config: Config) -> dict[str, str]:
    """The files of `nitefury_files`, and `memory.v` and `litedram.v`.

    The controller makes the card's clock of the board's oscillator. A reset of the link resets it,
    too, and rows in the DRAM are then lost.

    Raises
    ------
    ValueError
        If a generator is not installed, or the bus of the configuration is too wide for the link.
    """
    config = replace(config, card_memory_log2=log2(DRAM.memory_bytes))
    controller = generate(DRAM, BOARD["part"], _OSCILLATOR_MHZ, config.clock_mhz)
    memory = second_memory(config, controller)
    return nitefury_files(config, DesignDram(memory, controller.verilog, _instance(memory)))


def _instance(memory):
    """The controller in the top module."""
    pins = [f".{name}({name})" for name in BOARD["pins"]["dram"] if name.startswith("ddram_")]
    port = [f".user_port_{PORT}_{name}({_WIDER.get(name, '{}').format(f'dram_{kind}_{name}')})"
            for kind in ("read", "write") for name in _signals(memory, kind)
            if not name.endswith(("cache", "prot"))]
    control = [f".wb_ctrl_{name}({value})" for name, value in {
        **{name: f"dram_control_{name}" for name in _signals(memory, "control")},
        "adr": "{16'd0, dram_control_adr}", "sel": "4'hf", "cti": "3'd0", "bte": "2'd0"}.items()]
    joined = ",\n    "
    return f"""\
  wire clk200;
  IBUFDS oscillator (.I(clk200_p), .IB(clk200_n), .O(clk200));
  {MODULE} {MODULE} (
    .clk(clk200), .rst(link_rst), .user_clk(clk), .user_rst(user_rst),
    .init_done(), .init_error(), .pll_locked(), .ddram_cs_n(), .wb_ctrl_err(),
    {joined.join(pins + port + control)});
"""


def _signals(memory, bus):
    """Names of a bus's signals."""
    prefix = f"dram_{bus}_"
    return [name.removeprefix(prefix) for *_, name in memory.pins if name.startswith(prefix)]
