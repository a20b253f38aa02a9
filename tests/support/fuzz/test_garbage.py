"""Cards whose memories start with garbage and invert what a collision reads."""

from functools import partial

import pytest
from hotrow_rtl.primitives.ram import RAM_VERILOG

from tests.support.fuzz import plan_soak, soak
from tests.support.fuzz.garbage import garbage_memories, open_garbage
from tests.support.fuzz.sessions import Mismatch

OLD = ".READS_OLD(32'd1)"


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
def test_a_collision_that_matters_is_found():
    """Memories that need the old data of a collision, without it."""
    def wrong(verilog):
        assert OLD in verilog
        return verilog.replace(OLD, OLD.replace("1)", "0)"))

    with pytest.raises(Mismatch):
        plan_soak.soak(100_000, card="tiny", open_device=partial(open_garbage, wrong))
