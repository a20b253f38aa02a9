"""Clock and area of each floating-point unit, placed and routed alone."""

import pytest
from amaranth.back import verilog
from amaranth.hdl import Signal, Value
from hotrow_rtl.float.convert import Narrow, Widen
from hotrow_rtl.float.divide import Divide
from hotrow_rtl.float.fma import FusedMultiplyAdd
from hotrow_rtl.float.sqrt import SquareRoot

from benchmarks.synthesis.clock import measure
from tests.boards.real_tools import place_and_route_tools

# LUTs, a tenth above the measured number, and multipliers.
LIMITS = {FusedMultiplyAdd: (1240, 4), Divide: (475, 0), SquareRoot: (320, 0), Widen: (180, 0),
          Narrow: (310, 0)}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("unit", LIMITS)
def test_125_mhz(unit, tmp_path):
    place_and_route_tools()
    dut = unit()
    ports = [Value.cast(value) for _, _, value in dut.signature.flatten(dut)]
    text = verilog.convert(dut, name="unit", emit_src=False, strip_internal_attrs=True,
                           ports=[port for port in ports if isinstance(port, Signal)])
    measured = measure(text, "unit", tmp_path, seeds=(1,))
    assert measured["fmax_mhz"] >= 125
    luts, multipliers = LIMITS[unit]
    assert measured["luts"] <= luts and measured["dsp"] == multipliers
