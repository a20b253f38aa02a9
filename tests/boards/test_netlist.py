"""Simulation of the netlist that synthesis makes for a board."""

import hotrow
import pytest
from hotrow_boards.boards import BOARDS
from hotrow_boards.build import synthesise, write_design
from hotrow_boards.tools import run

from tests.boards.board_program import counts_of
from tests.boards.ecp5_cells import cell_models, with_plain_pins
from tests.boards.real_tools import real_tool
from tests.boards.simulated_board import CLOCK_HZ, PATIENCE
from tests.driver.conftest import counts, random_ids, register_tables, usable
from tests.driver.links import declared_transports

WRAPPER = """
module netlist(input clk, input rst, input rx, output tx);
  top board(.clk100_0__io(clk), .rst_0__io(~rst), .uart_0__rx__io(rx), .uart_0__tx__io(tx));
endmodule
"""


def exercise(netlist, monkeypatch):
    """Registers and commands through the pins of a netlist of ECPIX-5."""
    from tests.support.boards.serial_board import SerialBoard, board_library

    library = board_library(cell_models() + with_plain_pins(netlist) + WRAPPER, "netlist")
    declared_transports(monkeypatch)
    with SerialBoard(library, CLOCK_HZ) as board, hotrow.open(
            f"uart:{board.path}", timeout=3000, ring_entries=2, patience=PATIENCE) as device:
        assert device.geometry.bus_bytes == BOARDS["ecpix5"].config.bus_bytes
        assert device.transport.session.card["clock_khz"] == 1000 * BOARDS["ecpix5"].clock_mhz
        tables = register_tables(device, rows=(6, 4))
        ids = random_ids(6, seed=4, rows=(6, 4))
        device.observe(ids)
        hot = device.harvest(k=20)
        assert counts_of(hot) == counts(ids)
        assert usable(device, tables)
        kept = tables[0].weights[:2].copy()
        device.scatter((tables[0], [0, 1]), kept + 1)
        assert (tables[0].weights[:2] == kept + 1).all()


@pytest.mark.route
@pytest.mark.timeout(7200)
def test_commands_on_the_netlist(tmp_path, monkeypatch):
    """LUTs, flip-flops, block RAMs and pins behave like the design."""
    pytest.importorskip("amaranth_boards")
    cell_models()
    yosys = real_tool("yosys")
    write_design(BOARDS["ecpix5"], tmp_path)
    synthesise(BOARDS["ecpix5"], tmp_path)
    run([yosys, "-q", "-p", "read_json netlist.json; write_verilog -noattr netlist.v"], tmp_path,
        "netlist.log")
    exercise((tmp_path / "netlist.v").read_text(), monkeypatch)
