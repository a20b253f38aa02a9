import numpy as np
import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.kernels.copying import assign_slots, mark_dirty
from hotrow.kernels.listing import locate_rows, select_rows

GROUP_OF, FIRST = np.array([0, 1, 0], np.int32), np.array([0, 0, 100], np.int64)


def test_rows_of_a_group():
    table, row = np.array([2, 1, 0, 2], np.uint64), np.array([5, 6, 7, 8], np.uint64)
    keys = table << np.uint64(32) | row
    found = select_rows(keys, np.array([3, 4, 9, 8], np.uint32), GROUP_OF, FIRST, 0, 8)
    assert found.flat.tolist() == [105, 7, 108] and found.slots.tolist() == [3, 9, 8]
    assert found.with_slot.tolist() == [0, 0, 1] and found.without_slot.tolist() == [1, 0, 1]
    assert found.bypassed == 2
    with pytest.raises(Error, match="row 1 of a device's list is of table 3: expected 0 to 2"):
        select_rows(keys + np.uint64(1 << 32) * (table < 2) * np.uint64(2), np.zeros(4, np.uint32),
                    GROUP_OF, FIRST, 0, 8)


def test_tables_of_flat_rows():
    first = np.array([0, 100, 300])
    found = locate_rows(torch.tensor([5, 100, 99, 302, 299, 0]), first, 7)
    assert found.tolist() == [[5, 7], [0, 8], [99, 7], [2, 9], [199, 8], [0, 7]]
    with pytest.raises(Error, match="flat row -1 at position 1 is negative"):
        locate_rows(torch.tensor([0, -1]), first, 0)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_in_slots(dtype):
    held, dirty = torch.full((6,), -1, dtype=dtype), torch.zeros(6, dtype=torch.bool)
    assert mark_dirty(dirty, torch.tensor([4, 9, 0, 6], dtype=dtype)).tolist() == [9, 6]
    assert dirty.tolist() == [True, False, False, False, True, False]
    assign_slots(held, dirty, torch.tensor([4, 2], dtype=torch.int32), torch.tensor([70, 71]))
    assert held.tolist() == [-1, -1, 71, -1, 70, -1] and dirty.tolist() == [True] + 5 * [False]
    with pytest.raises(Error):
        assign_slots(held, dirty, torch.tensor([1, 6], dtype=torch.int32), torch.tensor([1, 2]))
    assert held.tolist() == [-1, -1, 71, -1, 70, -1]
    with pytest.raises(Error, match="negative"):
        mark_dirty(dirty, torch.tensor([-1]))
