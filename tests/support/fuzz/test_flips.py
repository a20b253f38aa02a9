"""Flipped bits in the directory of the Verilated card."""

import re
from functools import partial

import pytest

from tests.support.fuzz.flips import open_flipping, soak
from tests.support.fuzz.sessions import Mismatch

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_no_flip_is_silent():
    tally = soak(2000)
    assert tally.commands / 10 < tally.refused < tally.commands * 9 / 10, tally


def test_a_parity_that_nobody_checks_is_found():
    def unchecked(verilog):
        changed, count = re.subn(r"(if \(rst\) corrupt <= 1'h0;\n\s+else corrupt <= )\w+;",
                                 r"\g<1>1'h0;", verilog)
        assert count == 1
        return changed

    with pytest.raises((Mismatch, TimeoutError)):
        soak(2000, open_device=partial(open_flipping, change=unchecked))
