"""Which memories of a directory may become UltraRAM."""

import re

import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.emit.component import to_verilog
from hotrow_rtl.lookup.directory.slot_table import SlotTable


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny", "alveo-u55c"])
def test_the_first_choice_alone_may_be_ultraram(name):
    """All further ones are block RAM: every die of a large FPGA has only so much UltraRAM."""
    config = preset(name)
    text = to_verilog(SlotTable(config), "slots")
    styles = {}
    for choice in range(config.directory_choices):
        body = re.search(rf"^module \\slots\.choice{choice}\.ram \(.*?^endmodule", text,
                         re.M | re.S)[0]
        styles[choice] = set(re.findall(r"\.STYLE\(\"?(\w+)\"?\)", body))
    assert styles == {choice: {"block" if choice else "auto"} for choice in styles}
