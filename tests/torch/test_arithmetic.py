import numpy as np
import pytest
import torch
from hotrow.torch.optim.arithmetic import pool, row_mean, sum_duplicates
from hotrow.torch.optim.rules import SGD, RowwiseAdagrad

from tests.support.row_sums import summed


def test_pool_of_empty_bags_is_zero():
    nothing = torch.empty(0, dtype=torch.int64)
    assert (pool(torch.ones(4, 8), nothing, torch.zeros(3, dtype=torch.int64)) == 0).all()
    assert pool(torch.ones(4, 8), nothing, nothing).shape == (0, 8)


@pytest.mark.parametrize("seed", range(3))
def test_duplicates_are_summed_as_bags_in_lookup_order(seed):
    rng = np.random.default_rng(seed)
    gradients = rng.standard_normal((40, 16)).astype(np.float32)
    bags = np.repeat(np.arange(40), rng.integers(0, 5, 40))
    rows = rng.integers(0, 9, len(bags))
    unique, sums = sum_duplicates(*map(torch.from_numpy, (rows, bags, gradients)))
    assert unique.tolist() == sorted(set(rows.tolist()))
    expected = np.stack([summed(gradients[bags[rows == row]]) for row in unique.tolist()])
    assert (sums.numpy() == expected).all(), f"seed {seed}"


def test_renaming_rows_changes_no_bit():
    """Slots rename rows; the place of a row changes no bit of its sum."""
    rng = np.random.default_rng(7)
    gradients = torch.from_numpy(rng.standard_normal((500, 16)).astype(np.float32))
    bags, rows = torch.arange(500), torch.from_numpy(rng.integers(0, 20, 500))
    names = torch.from_numpy(rng.permutation(1000)[:20])
    plain = dict(zip(*(each.tolist() for each in sum_duplicates(rows, bags, gradients)),
                     strict=True))
    renamed = dict(zip(*(each.tolist() for each in sum_duplicates(names[rows], bags, gradients)),
                       strict=True))
    assert {int(names[row]): total for row, total in plain.items()} == renamed


def test_sgd_rounds_once():
    rng = np.random.default_rng(1)
    weights, gradients = rng.standard_normal((2, 999, 7)).astype(np.float32)
    lr = 0.3
    # A product of two fp32 numbers is exact in fp64, so this is the fused operation.
    expected = (weights.astype(np.float64) - np.float64(np.float32(lr)) * gradients).astype(
        np.float32)
    updated, state = SGD(lr).update(torch.from_numpy(weights), torch.from_numpy(gradients))
    assert (updated.numpy() == expected).all() and state is None
    twice_rounded = weights - np.float32(lr) * gradients
    assert (twice_rounded != expected).any(), "the data must distinguish fused from unfused"


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 7, 12, 16, 64])
def test_row_mean_is_the_mean_whatever_the_company(dim):
    values = torch.from_numpy(np.random.default_rng(dim).random((33, dim)).astype(np.float32))
    mean = row_mean(values)
    torch.testing.assert_close(mean, values.mean(dim=1))
    assert torch.equal(mean[5:6], row_mean(values[5:6]))


def test_row_mean_adds_neighbours():
    values = torch.tensor([[1e8, -1e8, 1.0, 1.0]])  # (1e8 - 1e8) + (1 + 1), no halves
    assert row_mean(values).item() == 0.5


def test_rowwise_adagrad_against_fp64():
    rng = np.random.default_rng(2)
    weights, gradients = rng.standard_normal((2, 20, 8))
    state = rng.random(20)
    optimizer = RowwiseAdagrad(0.1, eps=1e-3)
    grown = state + (gradients**2).mean(axis=1)
    expected = weights - 0.1 / (np.sqrt(grown) + 1e-3)[:, None] * gradients
    got_weights, got_state = optimizer.update(
        *(torch.from_numpy(each).float() for each in (weights, gradients, state)))
    np.testing.assert_allclose(got_state.numpy(), grown, rtol=1e-6)
    np.testing.assert_allclose(got_weights.numpy(), expected, rtol=1e-5, atol=1e-6)
