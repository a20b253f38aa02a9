"""Memories that synthesis maps to block RAM."""

import json

import pytest
from hotrow_boards.synthesis import map_cells
from hotrow_rtl.primitives.ram import RAM_MODULE, RAM_VERILOG

from tests.boards.real_tools import real_tool

WIDE, NARROW = 80, 40
DESIGN = "\n".join([RAM_VERILOG, "module dut(input clk, input [3:0] at, input write,",
                    f"input [{WIDE + NARROW - 1}:0] d, output [{WIDE + NARROW - 1}:0] q);", *(
    f"{RAM_MODULE} #(.WIDTH({width}), .DEPTH(16), .ADDRESS(4)) ram{width}(.clk(clk), "
    ".write_enable(write), .write_address(at), .read_enable(1'b1), .read_clear(1'b0), "
    f".read_address(at), .write_data(d[{low} +: {width}]), .read_data(q[{low} +: {width}]));"
    for width, low in ((WIDE, 0), (NARROW, WIDE))), "endmodule\n"])


@pytest.mark.slow
@pytest.mark.parametrize("block_rams, widths", [
    ([(WIDE + 1, 0)], []), ([(WIDE, 17)], []), ([(WIDE, 16), (NARROW, 17)], [WIDE]),
    ([(NARROW, 16)], [WIDE, NARROW])])
def test_wide_memories_in_block_rams(block_rams, widths, tmp_path):
    """A block RAM holds 36 bits of a row, a LUT RAM cell four."""
    real_tool("yosys")
    (tmp_path / "dut.v").write_text(DESIGN)
    used = map_cells(["read_verilog -sv dut.v"], "dut", tmp_path, block_rams)
    assert used["bram"] == sum(-(-width // 36) for width in widths)
    cells = json.loads((tmp_path / "netlist.json").read_text())["modules"]["dut"]["cells"]
    assert sum(cell["type"] == "TRELLIS_DPR16X4" for cell in cells.values()) == (
        WIDE + NARROW - sum(widths)) // 4
