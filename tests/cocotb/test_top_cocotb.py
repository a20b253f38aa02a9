"""A whole card in cocotb: `make cocotb` runs a small one on both simulators, tiny on Verilator."""

import json

import pytest
from hotrow_rtl.cli import variant
from hotrow_rtl.emit.verilog import TOP_MODULE
from hotrow_sim.verilated.build import cached_verilog

SMALL = {"lanes": 1, "row_ports": 1, "arithmetic": False, "planner": False, "counter_sets": 16,
         "counter_ways": 2, "directory_sets": 16, "miss_entries": 32, "window_beats": 2,
         "burst_beats": 8}
LONG, NIGHTLY = pytest.mark.long, pytest.mark.nightly
# Rounds, the seed of their commands, the tables, and the tests of the bench. The short one has 14
# commands of 9 kinds with few elements.
SHORT = SMALL, "1", "839", [0, 1, 2, 9, 14], "random_commands.*0.4"
WHOLE = {}, "2", "12", [*range(16)], ""


@pytest.mark.parametrize("simulator, settings, rounds, seed, tables, chosen", [
    *(pytest.param(simulator, *SHORT, marks=LONG, id=f"{simulator}-small")
      for simulator in ("icarus", "verilator")),
    pytest.param("verilator", *WHOLE, marks=LONG, id="verilator-tiny"),
    pytest.param("icarus", *WHOLE, marks=[LONG, NIGHTLY], id="icarus-tiny")],
    indirect=["simulator"])
def test_top(simulate, settings, rounds, seed, tables, chosen):
    # Of a word that a master writes, bytes without strobes may be undefined.
    undefined = {"COCOTB_RESOLVE_X": "random", "COCOTB_RANDOM_SEED": "1"}
    simulate(cached_verilog(variant("tiny", settings)), TOP_MODULE, "tb_top", ROUNDS=rounds,
             SEED=seed, TABLES=json.dumps(tables), SETTINGS=json.dumps(settings),
             COCOTB_TEST_FILTER=chosen, **undefined)
