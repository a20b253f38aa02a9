import pytest
from hotrow_rtl.emit.component import to_verilog

from tests.support.pcie.bench import REGISTER_BITS, bridge


@pytest.mark.slow
@pytest.mark.parametrize("bus_bytes", [8, pytest.param(16, marks=pytest.mark.long)])
def test_pcie(simulate, bus_bytes):
    pytest.importorskip("cocotbext.pcie", reason="cocotbext-pcie is not installed")
    simulate(to_verilog(bridge(bus_bytes), "bridge"), "bridge", "tb_pcie",
             WIDTH=str(8 * bus_bytes), REGISTER_BITS=str(REGISTER_BITS))
