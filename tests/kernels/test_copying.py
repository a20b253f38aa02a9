import numpy as np
import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.kernels.copying import copy_rows, place_slots

from tests.kernels.draws import DTYPES, draw_rows, same_bits


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [1, 8, 17, 64])
def test_rows_between_arrays(dim, dtype):
    generator = torch.Generator().manual_seed(dim)
    source = draw_rows(generator, 50, dim + 2, dtype)[:, 1:dim + 1]
    to, start = (torch.randperm(50, generator=generator)[:30] for _ in range(2))
    target = torch.zeros(60, dim, dtype=dtype)
    expected = target.clone()
    expected[to] = source[start]
    copy_rows(target, source, to, start.int())
    assert same_bits(target, expected)
    gathered = torch.empty(30, dim, dtype=dtype)
    copy_rows(gathered, source, start=start)
    assert same_bits(gathered, source[start])
    copy_rows(target, gathered, to=to.int())
    assert same_bits(target, expected)


def test_state_of_rows():
    source, target = torch.arange(9.0), torch.zeros(4)
    copy_rows(target, source, torch.tensor([3, 1]), torch.tensor([8, 2]))
    assert target.tolist() == [0, 2, 0, 8]


def test_threads_copy_all(monkeypatch):
    monkeypatch.setattr("hotrow.kernels.copying.threads_for", lambda _: 3)
    test_rows_between_arrays(17, torch.float32)


def test_nothing_is_copied_where_an_index_is_no_row():
    target, source = torch.zeros(4, 2), torch.ones(9, 2)
    for to, start in (([0, 4], [0, 1]), ([0, 1], [3, 9])):
        with pytest.raises(Error, match="row 1 of 2 to be copied is outside"):
            copy_rows(target, source, torch.tensor(to), torch.tensor(start))
    assert torch.equal(target, torch.zeros(4, 2))


def test_rows_that_do_not_fit_are_refused():
    for target, source, to in ((torch.zeros(4, 2), torch.ones(4, 3), None),
                               (torch.zeros(4, 2), torch.ones(5, 2), None),
                               (torch.zeros(4, 2), torch.ones(4, 2).double(), None),
                               (torch.zeros(4, 2), torch.ones(4, 2), torch.tensor([1]))):
        with pytest.raises(Error, match="cannot copy"):
            copy_rows(target, source, to)


SHAPE = {"directory": 64, "per_choice": 32, "part": 8, "first": 16}  # second of four, two choices


def test_slots_of_a_partition_become_places():
    area = torch.tensor([30, 21])
    slots = np.array([16, 23, 48, 55, 64, 65, 64], np.uint32)
    assert place_slots(slots, area, **SHAPE).tolist() == [0, 7, 8, 15, 30, 21, 30]
    flagged = np.array([16, 1 << 31 | 1], np.uint32)
    assert place_slots(flagged, area, **SHAPE, flag=1 << 31).tolist() == [0, 21]


@pytest.mark.parametrize("wrong", [15, 24, 47, 56, 66, 1 << 31])
def test_slots_elsewhere_are_refused(wrong):
    slots = np.array([16, 17, wrong], np.uint32)
    with pytest.raises(Error, match=f"lookup 2 has slot {wrong:#x}"):
        place_slots(slots, torch.tensor([30, 21]), **SHAPE)


def test_slots_of_the_whole_directory_are_their_places():
    shape, area = {"directory": 64, "per_choice": 32, "part": 32}, torch.tensor([70, 81])
    slots = np.array([0, 31, 32, 63], np.uint32)
    assert place_slots(slots, area, **shape).tolist() == [0, 31, 32, 63]
    more = np.append(slots, np.uint32(65))
    assert place_slots(more, area, **shape).tolist() == [0, 31, 32, 63, 81]
    with pytest.raises(Error, match="lookup 4 has slot 0x42"):
        place_slots(np.append(slots, np.uint32(66)), area, **shape)
