import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.kernels.ids import flatten_ids

ROWS = torch.tensor([10, 20, 5])


@pytest.mark.parametrize("integers", [torch.int32, torch.int64])
@pytest.mark.parametrize("flat_integers", [torch.int32, torch.int64])
def test_dense_ids_are_written_feature_after_feature(integers, flat_integers):
    wide = (torch.rand(30, 5) * torch.tensor([10, 20, 5, 1, 1])).to(integers)
    for ids in (wide[:, :3], wide[::2, :3], wide[:, :3].T.contiguous().T):
        flat, wrong = flatten_ids(ids, ROWS, dtype=flat_integers)
        assert wrong == -1 and flat.dtype == flat_integers
        assert torch.equal(flat, ids.T.reshape(-1).to(flat_integers))


def test_bags_of_ids_are_checked():
    counts = torch.tensor([4, 0, 3])
    flat, wrong = flatten_ids(torch.tensor([9, 0, 3, 3, 4, 0, 1]), ROWS, counts)
    assert wrong == -1
    assert flat.tolist() == [9, 0, 3, 3, 4, 0, 1]


def test_features_in_another_order():
    order, counts = [2, 0, 1], torch.tensor([4, 1, 3])
    bags = torch.tensor([9, 0, 3, 3, 19, 4, 0, 1])
    flat, wrong = flatten_ids(bags, ROWS[order], counts, torch.int32, order)
    assert wrong == -1 and flat.tolist() == [4, 0, 1, 9, 0, 3, 3, 19]
    assert flatten_ids(bags, ROWS, counts, order=order)[1] == 7, "as rows of other tables"
    ids = (torch.rand(30, 3) * ROWS).long()
    flat, wrong = flatten_ids(ids, ROWS[order], order=order)
    assert wrong == -1 and torch.equal(flat, ids[:, order].T.reshape(-1))


@pytest.mark.parametrize("value", [-1, 5, 1 << 31, -(1 << 35)])
def test_the_first_wrong_id_is_found(value):
    ids = torch.zeros(30, 3, dtype=torch.int64)
    ids[7, 2] = ids[2, 2] = value
    assert flatten_ids(ids, ROWS)[1] == 62
    counts = torch.full((3,), 30)
    assert flatten_ids(ids.T.reshape(-1), ROWS, counts)[1] == 62


def test_every_row_up_to_the_limits():
    ids = torch.tensor([[0, 0, 0], [9, 19, 4]])
    assert flatten_ids(ids, ROWS)[1] == -1
    for feature in range(3):
        beyond = ids.clone()
        beyond[1, feature] += 1
        assert flatten_ids(beyond, ROWS)[1] == 2 * feature + 1


def test_features_that_do_not_fit_are_refused():
    with pytest.raises(Error, match="expected ids of 3 features"):
        flatten_ids(torch.zeros(4, 2, dtype=torch.int64), ROWS)
    with pytest.raises(Error, match="expected ids of 3 features"):
        flatten_ids(torch.zeros(4, dtype=torch.int64), ROWS, counts=torch.tensor([1, 1, 1]))
    with pytest.raises(Error, match=r"every one of 3 features once in the order, got \[0, 0, 1\]"):
        flatten_ids(torch.zeros(4, 3, dtype=torch.int64), ROWS, order=[0, 0, 1])
