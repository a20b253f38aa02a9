from hotrow_rtl.config import preset
from hotrow_rtl.emit.component import to_verilog
from hotrow_rtl.host.register_block import RegisterBlock


def test_register_block(simulate):
    simulate(to_verilog(RegisterBlock(preset("tiny")), "register_block"), "register_block",
             "tb_register_block")
