"""Grouping of equal keys, against NumPy's own functions."""

import numpy as np
import pytest
from hotrow.operands.integers import first_appearances, grouped, repeats


@pytest.mark.parametrize("bits", [1, 4, 42, 63, 64])
@pytest.mark.parametrize("count", [0, 1, 2, 255, 256, 1000])
def test_groups(count, bits):
    rng = np.random.default_rng([count, bits])
    keys = rng.integers(0, (1 << bits) - 1, count, np.uint64, endpoint=True)
    keys[count // 2:] = keys[:count - count // 2]
    order, begins = grouped(keys)
    assert (order == np.argsort(keys, kind="stable")).all()
    unique, first, group = np.unique(keys, return_index=True, return_inverse=True)
    assert (keys[order[begins]] == unique).all()
    at, index = first_appearances(keys)
    assert (at == first).all() and (index == group).all()
    assert repeats(keys) == (len(unique) < count)
