import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.emit.verilog import TOP_MODULE, emit


@pytest.mark.parametrize("simulate", [
    pytest.param("verilator", marks=pytest.mark.slow),
    pytest.param("icarus", marks=pytest.mark.long)], indirect=True)
def test_top(simulate):
    simulate(emit(preset("tiny")), TOP_MODULE, "tb_top", ROUNDS="2")
