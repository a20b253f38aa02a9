"""Verilated devices of changed Verilog."""

from unittest.mock import patch

from hotrow_rtl.primitives.ram import RAM_VERILOG
from hotrow_sim.verilated import build
from hotrow_sim.verilated.transport import open_transport


def other_memories(verilog: str, memory: str) -> str:
    """The Verilog of a card with another module in the place of `RAM_VERILOG`.

    Raises
    ------
    ValueError
        If the card has no memories of its own, or the module is the same.
    """
    if verilog.count(RAM_VERILOG) != 1 or memory == RAM_VERILOG:
        raise ValueError("the Verilog has not the memories that `primitives.ram` emits")
    return verilog.replace(RAM_VERILOG, memory)


def open_changed(change, **options):
    """The device that `open_transport` opens with these options, of the Verilog that `change`
    returns for its own."""
    emitted = build.cached_verilog
    with patch.object(build, "cached_verilog", lambda *arguments: change(emitted(*arguments))):
        return open_transport(**options)
