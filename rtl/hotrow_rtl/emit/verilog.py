"""Verilog of an accelerator: one text, the same bytes for the same configuration."""

from amaranth.back import verilog
from amaranth.hdl import Value

from ..config import Config
from ..primitives.ram import RAM_VERILOG
from ..primitives.shared_module import ModuleCache
from ..top import Top
from .gc_pause import kept_objects
from .verilog_passes import (
    compact,
    drop_unread,
    refuse_zero_width,
    share_modules,
    wake_at_time_zero,
)

TOP_MODULE = "hotrow"
_PREFIXES = {
    "registers": "s_axil",
    "list_bus": "m_axi_list",
    **{f"result_bus_{number}": f"m_axi_result{number}" for number in range(4)},
    **{f"row_{half}_bus_{number}": f"m_axi_row{number}"
       for half in ("read", "write") for number in range(8)},
}


class VerilogPlatform:
    """Tells `Ram` to become an instance of the one memory module of `RAM_VERILOG`, and `once`, if
    there are `units`, to instantiate repeated components."""

    ram_instances = True

    def __init__(self, units=None):
        self.units = units


def flat_ports(top: Top) -> dict:
    """The top's ports by flat name; `clk` and `rst` come beside them."""
    ports = {}
    for (bus, *names), _, value in top.signature.flatten(top):
        # No direction: what the top drives is an output.
        ports["_".join((_PREFIXES.get(bus, bus), *names))] = Value.cast(value), None
    return ports


def emit(config: Config) -> str:
    """Verilog of the accelerator, its top module named `hotrow`.

    Ports: clk, rst (synchronous, active high), interrupt, and with the flat names of AXI members
    s_axil_*, m_axi_list_*, m_axi_result0_* (to m_axi_result3_*), m_axi_row0_* (to m_axi_row7_*).

    Raises
    ------
    ValueError
        If a port had no bits.
    """
    with kept_objects():
        top, units = Top(config), ModuleCache()
        text = verilog.convert(top, name=TOP_MODULE, platform=VerilogPlatform(units),
                               ports=flat_ports(top), emit_src=False, strip_internal_attrs=True)
    modules = text.partition("\n")[2] + units.text  # without the remark which Yosys wrote it
    refuse_zero_width(modules)
    return (f"// hotrow, configuration {config.name}: emitted by hotrow_rtl\n"
            f"{compact(share_modules(drop_unread(wake_at_time_zero(modules))))}\n{RAM_VERILOG}")
