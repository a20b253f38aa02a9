"""Verilog of one component."""

from hotrow_rtl.emit.component import to_verilog
from hotrow_rtl.primitives.ram import RAM_VERILOG


def component_verilog(component, name):
    """Text of the module `name`; a port has the path of its member, joined by `__`."""
    return to_verilog(component, name) + RAM_VERILOG
