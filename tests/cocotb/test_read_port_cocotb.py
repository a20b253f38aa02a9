import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.memory.read_port import DmaReadPort

from tests.support.cosim.component import component_verilog

CLIENTS = 3


@pytest.mark.slow
def test_read_port(simulate):
    simulate(component_verilog(DmaReadPort(preset("tiny"), CLIENTS), "read_port"), "read_port",
             "tb_read_port", CLIENTS=str(CLIENTS))
