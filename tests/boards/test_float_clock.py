"""Clock and area of the floating-point units, each placed and routed alone."""

import pytest
from amaranth.back import verilog
from hotrow_boards.clock import measure
from hotrow_rtl.float.convert import Narrow, Widen
from hotrow_rtl.float.divide import Divide
from hotrow_rtl.float.fma import FusedMultiplyAdd
from hotrow_rtl.float.sqrt import SquareRoot
from hotrow_sim.testing.units.float_unit import FlatUnit

from tests.boards.real_tools import place_and_route_tools

# Lookup tables, about a tenth more than today, and multipliers.
ROOM = {FusedMultiplyAdd: (1300, 4), Divide: (500, 0), SquareRoot: (385, 0), Widen: (195, 0),
        Narrow: (365, 0)}


@pytest.mark.slow
@pytest.mark.parametrize("unit", ROOM)
def test_125_mhz(unit, tmp_path):
    place_and_route_tools()
    text = verilog.convert(FlatUnit(unit()), name="unit", emit_src=False,
                           strip_internal_attrs=True)
    measured = measure(text, "unit", tmp_path, seeds=(1,))
    assert measured["fmax_mhz"] >= 125
    luts, multipliers = ROOM[unit]
    assert measured["luts"] <= luts and measured["dsp"] == multipliers
