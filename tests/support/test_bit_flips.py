"""The effect of flipped bits on training: which of them can be silent."""

import pytest

from tests.support.bit_flips import REFUSED, SILENT, effect


@pytest.mark.parametrize("kind", ["slot of a lookup", "slot of a fill", "row of a victim"])
def test_a_flip_can_be_silent(kind):
    assert SILENT in {effect(kind, seed) for seed in range(6)}


def test_a_row_that_does_not_exist_is_refused():
    assert REFUSED in {effect("row of a fill", seed) for seed in range(6)}
