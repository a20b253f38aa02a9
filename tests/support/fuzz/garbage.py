"""The Verilated card with memories that start with garbage and invert what a collision reads."""

import re
from unittest.mock import patch

from hotrow_rtl.primitives.ram import RAM_VERILOG
from hotrow_sim.verilated import build
from hotrow_sim.verilated.transport import open_transport

_ROWS = re.compile(r"(reg \[WIDTH-1:0\] rows \[DEPTH-1:0\];)")
_READ = "else read_data <= rows[read_address];"
_GARBAGE = """\\1
      integer row;
      initial begin
        read_data = {(WIDTH / 32 + 1){32'hDEADBEEF}};
        for (row = 0; row < DEPTH; row = row + 1)
          rows[row] = {(WIDTH / 32 + 1){row * 32'h9E3779B9 + 32'h5EED5EED}};
      end"""
_INVERTED = ("else read_data <= |write_enable && write_address == read_address"
             " ? ~rows[read_address] : rows[read_address];")


def garbage_memories(verilog: str) -> str:
    """The Verilog of a card whose memories start with garbage and invert what a collision reads.

    Raises
    ------
    ValueError
        If the card has no memories of its own.
    """
    exact, loose = RAM_VERILOG.split(": loose")
    changed = _ROWS.sub(_GARBAGE, f"{exact}: loose{loose.replace(_READ, _INVERTED)}")
    if verilog.count(RAM_VERILOG) != 1 or changed.count("initial begin") != 2 or (
            changed.count("~rows") != 1):
        raise ValueError("the Verilog has not the memories that `primitives.ram` emits")
    return verilog.replace(RAM_VERILOG, changed)


def open_garbage(change=lambda verilog: verilog, **options):
    """A device as of `open_transport`; `garbage_memories` and `change` change its Verilog."""
    emitted = build.cached_verilog
    with patch.object(build, "cached_verilog", lambda *arguments: change(
            garbage_memories(emitted(*arguments)))):
        return open_transport(**options)
