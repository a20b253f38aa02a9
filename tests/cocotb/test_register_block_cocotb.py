from hotrow_rtl.config import preset
from hotrow_rtl.host.register_block import RegisterBlock

from tests.support.cosim.component import component_verilog


def test_register_block(simulate):
    simulate(component_verilog(RegisterBlock(preset("tiny")), "register_block"), "register_block",
             "tb_register_block")
