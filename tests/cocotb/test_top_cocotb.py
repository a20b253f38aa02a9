import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.emit.verilog import TOP_MODULE
from hotrow_sim.verilated.build import cached_verilog


@pytest.mark.long
def test_top(simulate):
    # Of a word that a master writes, bytes without strobes may be undefined.
    undefined = {"COCOTB_RESOLVE_X": "random", "COCOTB_RANDOM_SEED": "1"}
    simulate(cached_verilog(preset("tiny")), TOP_MODULE, "tb_top", ROUNDS="2", **undefined)
