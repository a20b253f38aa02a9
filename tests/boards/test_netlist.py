"""The netlist that a board's FPGA would hold, simulated: what synthesis made still is the card."""

import hotrow
import numpy as np
import pytest
from hotrow_boards.emit import CARD_MODULE, emit_uart_card
from hotrow_boards.synthesis import synthesis_script, used_resources
from hotrow_boards.tools import run, tool
from hotrow_rtl.config import preset

from tests.boards.ecp5_cells import cell_models
from tests.boards.simulated_board import CLOCK_HZ, PATIENCE
from tests.driver.conftest import counts, random_ids, register_tables, usable
from tests.driver.links import declared_transports

MEMORY_BYTES = 1 << 16


@pytest.mark.slow
@pytest.mark.long
def test_commands_on_the_netlist(tmp_path, monkeypatch):
    """Preset `ecp5-small` with link and memory, mapped to LUTs, flip-flops and block RAMs."""
    from hotrow_sim.verilated.serial_board import SerialBoard, board_library

    models = cell_models()
    try:
        yosys = tool("yosys")
    except ValueError as missing:
        pytest.skip(str(missing))
    config = preset("ecp5-small")
    (tmp_path / "card.v").write_text(emit_uart_card(config, MEMORY_BYTES, int(CLOCK_HZ / 1000)))
    (tmp_path / "synthesis.ys").write_text(
        synthesis_script(["read_verilog -sv card.v"], CARD_MODULE)
        + "write_verilog -noattr netlist.v\n")
    run([yosys, "-q", "-s", "synthesis.ys"], tmp_path, "synthesis.log")
    used = used_resources(tmp_path / "cells.json")
    assert used["luts"] > 10_000 and used["bram"] >= MEMORY_BYTES // 2048

    library = board_library(models + (tmp_path / "netlist.v").read_text(), CARD_MODULE)
    declared_transports(monkeypatch)
    with SerialBoard(library, CLOCK_HZ) as board, hotrow.open(
            f"uart:{board.path}", timeout=3000, ring_entries=2, patience=PATIENCE) as device:
        assert device.geometry.bus_bytes == config.bus_bytes
        tables = register_tables(device)
        ids = random_ids(6, seed=4)
        device.observe(ids)
        hot = device.harvest(k=8)
        told = dict(zip(zip(hot.table.tolist(), hot.row.tolist()), hot.count.tolist()))
        assert told.items() <= counts(ids).items() and len(told) == 8
        assert usable(device, tables)
        kept = tables[0].weights[:2].copy()
        device.scatter((tables[0], [0, 1]), kept + 1)
        assert (tables[0].weights[:2] == kept + 1).all()
        assert np.isfinite(tables[0].weights).all()
