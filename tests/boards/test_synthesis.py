"""Memories that synthesis maps to block RAM."""

import json

import pytest
from hotrow_boards.synthesis import count_units, map_cells
from hotrow_rtl.primitives.ram import RAM_MODULE, RAM_VERILOG

from tests.boards.real_tools import real_tool

WIDE, NARROW = 80, 40
DESIGN = "\n".join([RAM_VERILOG, "module dut(input clk, input [3:0] at, input write,",
                    f"input [{WIDE + NARROW - 1}:0] d, output [{WIDE + NARROW - 1}:0] q);", *(
    f"{RAM_MODULE} #(.WIDTH({width}), .DEPTH(16), .ADDRESS(4)) ram{width}(.clk(clk), "
    ".write_enable(write), .write_address(at), .read_enable(1'b1), .read_clear(1'b0), "
    f".read_address(at), .write_data(d[{low} +: {width}]), .read_data(q[{low} +: {width}]));"
    for width, low in ((WIDE, 0), (NARROW, WIDE))), "endmodule\n"])


def test_resources_by_unit():
    units = count_units({
        "mover.port.reader.q_TRELLIS_FF_Q": "TRELLIS_FF", "mover.port.sum_CCU2C_S0": "CCU2C",
        "$flatten\\mover.\\port.$memory\\rows.0.0": "TRELLIS_DPR16X4", "start_LUT4_Z": "LUT4",
        "engines.ready_LUT4_Z": "LUT4", "mover.port.x_PFUMX_Z": "PFUMX"})
    assert units == {
        "mover.port": {"luts": 8, "ffs": 1, "bram": 0, "dsp": 0},
        "": {"luts": 1, "ffs": 0, "bram": 0, "dsp": 0},
        "engines": {"luts": 1, "ffs": 0, "bram": 0, "dsp": 0}}


@pytest.mark.long
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
