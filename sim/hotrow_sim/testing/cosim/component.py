"""Verilog of one component."""

from amaranth.back import verilog
from hotrow_rtl.emit.gc_pause import kept_objects
from hotrow_rtl.emit.verilog import VerilogPlatform
from hotrow_rtl.emit.verilog_passes import wake_at_time_zero
from hotrow_rtl.primitives.ram import RAM_VERILOG


def component_verilog(component, name):
    """Text of the module `name`; a port has the path of its member, joined by `__`."""
    with kept_objects():
        text = verilog.convert(component, name=name, platform=VerilogPlatform(), emit_src=False,
                               strip_internal_attrs=True)
    return wake_at_time_zero(text) + RAM_VERILOG
