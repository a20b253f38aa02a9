"""The Verilated card with memories that start with garbage and invert what a collision reads."""

import re

from hotrow_rtl.primitives.ram import RAM_VERILOG

from .changed_verilog import open_changed, other_memories

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
    return other_memories(
        verilog, _ROWS.sub(_GARBAGE, f"{exact}: loose{loose.replace(_READ, _INVERTED)}"))


def open_garbage(change=lambda verilog: verilog, **options):
    """A Verilated device whose Verilog `garbage_memories` and then `change` have changed."""
    return open_changed(lambda verilog: change(garbage_memories(verilog)), **options)
