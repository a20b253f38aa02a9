import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.emit.verilog import TOP_MODULE, emit


@pytest.mark.slow
def test_top(simulate):
    simulate(emit(preset("tiny")), TOP_MODULE, "tb_top", ROUNDS="2")
