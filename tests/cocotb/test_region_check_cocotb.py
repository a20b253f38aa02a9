from hotrow_rtl.config import preset
from hotrow_rtl.memory.region_check import RegionCheck

from tests.support.cosim.component import component_verilog


def test_region_check(simulate):
    simulate(component_verilog(RegionCheck(preset("tiny")), "region_check"), "region_check",
             "tb_region_check")
