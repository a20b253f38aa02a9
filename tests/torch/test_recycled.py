"""Memory of large results is used again once nothing refers to it."""

import torch
from hotrow.torch.optim.lookup import RecycledMemory

ROWS, COLUMNS = 1 << 10, 1 << 9


def test_a_dropped_result_is_used_again():
    memory = RecycledMemory()
    first = memory.empty(ROWS, COLUMNS)
    place = first.data_ptr()
    del first
    assert memory.empty(ROWS - 1, COLUMNS).data_ptr() == place
    assert memory.empty(ROWS, COLUMNS).data_ptr() == place


def test_results_that_are_alive_share_nothing():
    memory = RecycledMemory()
    kept = [memory.empty(ROWS, COLUMNS).fill_(0)[3:4], memory.empty(ROWS, COLUMNS).fill_(1).numpy(),
            memory.empty(ROWS, COLUMNS).fill_(2).view(-1).detach()]
    for _ in range(4):
        memory.empty(ROWS, COLUMNS).fill_(-1)
    assert [float(each.min()) for each in kept] == [0, 1, 2]


def test_two_sizes_in_turn_keep_their_memory():
    memory, places = RecycledMemory(), set()
    result = None
    for _ in range(6):
        result = memory.empty(ROWS, COLUMNS)  # while the result before is alive
        sums = memory.empty(ROWS // 2 + 100, COLUMNS)
        places |= {result.data_ptr(), sums.data_ptr()}
        del sums
    assert len(places) == 3


def test_few_blocks_of_other_sizes_are_kept():
    memory = RecycledMemory()
    for size in range(1, 20):
        memory.empty(size * ROWS, COLUMNS)
    assert len(memory._free) <= 5


def test_small_results_come_from_the_allocator():
    memory = RecycledMemory()
    assert memory.empty(3, 4).shape == (3, 4)
    assert memory.empty(0, 4).dtype == torch.float32
    assert not memory._free
