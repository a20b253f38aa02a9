"""Clock and area of the units that compute on rows, each placed and routed alone."""

import pytest
from amaranth.back import verilog
from hotrow_boards.clock import measure
from hotrow_boards.tools import tool
from hotrow_rtl.config import preset
from hotrow_rtl.emit import VerilogPlatform
from hotrow_rtl.float_add import Add
from hotrow_rtl.ram import RAM_VERILOG
from hotrow_rtl.row_pool import RowPool
from hotrow_rtl.row_update import RowUpdate
from hotrow_rtl.verilog_text import drop_unread, share_modules, wake_at_time_zero
from hotrow_sim.verilated.float_unit import FlatUnit

ECP5 = preset("ecp5-85f")


@pytest.mark.slow
@pytest.mark.parametrize("make, mhz", [
    (lambda: FlatUnit(Add()), 125), (lambda: RowPool(ECP5), 100), (lambda: RowUpdate(ECP5), 100),
], ids=["Add", "RowPool", "RowUpdate"])
def test_clock(make, mhz, tmp_path):
    for name in ("yosys", "nextpnr-ecp5"):
        try:
            tool(name)
        except ValueError as missing:
            pytest.skip(str(missing))
    text = verilog.convert(make(), name="unit", platform=VerilogPlatform(), emit_src=False,
                           strip_internal_attrs=True)
    text = share_modules(drop_unread(wake_at_time_zero(text))) + RAM_VERILOG
    assert measure(text, "unit", tmp_path, seeds=(1,))["fmax_mhz"] >= mhz
