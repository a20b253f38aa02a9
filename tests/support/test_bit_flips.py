"""The effect of flipped bits on training: which of them can be silent."""

import pytest

from tests.support.bit_flips import HARMLESS, REFUSED, SILENT, effect


@pytest.mark.parametrize("kind", ["directory: use stamp", "directory: priority, or a counter"])
def test_what_only_chooses_victims_never_changes_values(kind):
    assert {effect(kind, seed) for seed in range(12)} == {HARMLESS}


@pytest.mark.parametrize("kind", ["directory: tag", "directory: valid, set to 0",
                                  "directory: dirty", "list buffer: slot of a fill"])
def test_what_steers_writes_can_be_silent(kind):
    assert SILENT in {effect(kind, seed) for seed in range(6)}


def test_a_row_that_does_not_exist_is_refused():
    assert REFUSED in {effect("list buffer: row of a fill", seed) for seed in range(6)}
