"""Cards whose memories start with garbage and invert what a collision reads."""

from functools import partial

import pytest
from hotrow_rtl.primitives.ram import RAM_VERILOG

from tests.support.fuzz import plan_soak, soak
from tests.support.fuzz.garbage import garbage_memories, open_garbage
from tests.support.fuzz.sessions import Mismatch


def test_memories_are_replaced():
    changed = garbage_memories(f"module one;\nendmodule\n{RAM_VERILOG}")
    assert changed.startswith("module one;") and changed.count("DEADBEEF") == 2
    with pytest.raises(ValueError, match="has not the memories"):
        garbage_memories("module one;\nendmodule\n")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("module, total", [(plan_soak, "lookups"), (soak, "rows")])
def test_garbage_makes_no_difference(module, total):
    assert module.main([f"--{total}", "100000", "--transport", "garbage", "--card", "tiny"]) == 0


@pytest.mark.slow
@pytest.mark.long
def test_inverted_data_that_is_used_is_found():
    """Reads of the row at the write port's address are inverted although nothing is written."""
    def wrong(verilog):
        return verilog.replace("|write_enable && write_address ==", "write_address ==")

    with pytest.raises((Mismatch, TimeoutError)):  # here the queue stalls
        plan_soak.soak(100_000, card="tiny", open_device=partial(open_garbage, wrong))
