"""Verilog of the accelerator: one text, the same bytes for the same configuration."""

from amaranth.hdl import Value

from ..config import Config
from ..top import Top
from .component import to_verilog

TOP_MODULE = "hotrow"
_PREFIXES = {
    "registers": "s_axil",
    "list_bus": "m_axi_list",
    **{f"result_bus_{number}": f"m_axi_result{number}" for number in range(4)},
    **{f"row_{half}_bus_{number}": f"m_axi_row{number}"
       for half in ("read", "write") for number in range(8)},
}


def flat_ports(top: Top) -> dict:
    """The top's ports by flat name; Amaranth adds `clk` and `rst`."""
    ports = {}
    for (bus, *names), _, value in top.signature.flatten(top):
        # No direction: Amaranth derives it from the drivers.
        ports["_".join((_PREFIXES.get(bus, bus), *names))] = Value.cast(value), None
    return ports


def emit(config: Config) -> str:
    """Verilog of the accelerator, its top module named `hotrow`.

    Ports: clk, rst (synchronous, active high), interrupt, and with the flat names of AXI members
    s_axil_*, m_axi_list_*, m_axi_result0_* (to m_axi_result3_*), m_axi_row0_* (to m_axi_row7_*).

    Raises
    ------
    ValueError
        If a port has no bits.
    """
    top = Top(config)
    return (f"// hotrow, configuration {config.name}: emitted by hotrow_rtl\n"
            f"{to_verilog(top, TOP_MODULE, flat_ports(top))}")
