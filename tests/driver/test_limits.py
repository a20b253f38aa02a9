"""What a run needs, refused before it begins."""

from types import SimpleNamespace

import pytest
from hotrow import Error
from hotrow.command.limits import check_batch
from hotrow.contract.geometry import PRESETS


def test_a_batch_that_another_card_takes():
    trace = SimpleNamespace(samples=None, cardinalities=[10])
    largest = max(PRESETS.values(), key=lambda card: card.batch_samples)
    with pytest.raises(Error, match=r"tiny takes at most 1,024 .*; --preset \S+ takes as many$"):
        check_batch(trace, 1025, "tiny")
    with pytest.raises(Error, match=r"samples in a batch$"):
        check_batch(trace, largest.batch_samples + 1, largest.name)
