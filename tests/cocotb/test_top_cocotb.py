import json

import pytest
from hotrow_rtl.cli import variant
from hotrow_rtl.emit.verilog import TOP_MODULE
from hotrow_sim.verilated.build import cached_verilog

SMALL = {"lanes": 1, "row_ports": 1, "arithmetic": False, "planner": False, "counter_sets": 16,
         "counter_ways": 2, "directory_sets": 16, "miss_entries": 32, "window_beats": 2,
         "burst_beats": 8}


@pytest.mark.parametrize("settings, rounds, chosen", [
    pytest.param(SMALL, "1", "random_commands.*0.4", marks=pytest.mark.slow, id="small"),
    pytest.param({}, "2", "", marks=pytest.mark.long, id="tiny")])
def test_top(simulate, settings, rounds, chosen):
    # Of a word that a master writes, bytes without strobes may be undefined.
    undefined = {"COCOTB_RESOLVE_X": "random", "COCOTB_RANDOM_SEED": "1"}
    simulate(cached_verilog(variant("tiny", settings)), TOP_MODULE, "tb_top", ROUNDS=rounds,
             SETTINGS=json.dumps(settings), COCOTB_TEST_FILTER=chosen, **undefined)
