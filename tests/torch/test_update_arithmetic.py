"""The arithmetic of the hardware against the trainer's: equal bits."""

import numpy as np
import pytest
import torch
from hotrow.torch.optim.arithmetic import pool, sum_duplicates
from hotrow.torch.optim.rules import SGD, RowwiseAdagrad
from hotrow_sim.golden.arithmetic.optimizer import rowwise_adagrad, sgd
from hotrow_sim.golden.arithmetic.pooling import bag_sums

LR, EPS = 0.05, 1e-8


def draw(seed, elements):
    rng = np.random.default_rng(seed)
    weights, gradients = (rng.standard_normal((200, elements)).astype(np.float32) * scale
                          for scale in (1, 0.1))
    return weights, gradients, rng.uniform(0.01, 2, 200).astype(np.float32)


def bits(values):
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


@pytest.mark.parametrize("elements", [4, 16, 20, 128])
def test_sgd_bit_for_bit(elements):
    weights, gradients, _ = draw(elements, elements)
    expected, _ = SGD(LR).update(torch.from_numpy(weights), torch.from_numpy(gradients))
    got = sgd(bits(weights), bits(gradients), bits(np.float32(LR)))
    assert (got == bits(expected.numpy())).all()


@pytest.mark.parametrize("elements", [4, 16, 20, 128])
def test_rowwise_adagrad_bit_for_bit(elements):
    weights, gradients, states = draw(elements, elements)
    expected, expected_states = RowwiseAdagrad(LR, EPS).update(
        *map(torch.from_numpy, (weights, gradients, states)))
    got, got_states = rowwise_adagrad(
        bits(weights), bits(gradients), bits(states), bits(np.float32(LR)), bits(np.float32(EPS)))
    assert (got_states == bits(expected_states.numpy())).all()
    assert (got == bits(expected.numpy())).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("elements", [4, 32, 60, 128, 260])
def test_pools_bit_for_bit(elements, weighted):
    rng = np.random.default_rng(elements)
    rows, lengths = draw(elements, elements)[0], np.minimum(rng.geometric(0.1, 90) - 1, 50)
    rows[rng.random(rows.shape) < 0.1] = -0.0
    listed = rng.integers(0, len(rows), lengths.sum())
    weights = rng.standard_normal(len(listed)).astype(np.float32) if weighted else None
    found = pool(*map(torch.from_numpy, (rows, listed, lengths)),
                 None if weights is None else torch.from_numpy(weights))
    expected = bag_sums(bits(rows[listed]), lengths, None if weights is None else bits(weights))
    assert (bits(found.numpy()) == expected).all(), f"seed {elements}"


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("elements", [4, 16, 60, 64, 128, 260])
def test_duplicate_gradients_bit_for_bit(elements, weighted):
    rng = np.random.default_rng(elements)
    counts = [1, 2, 3, 4, 17, 100, 2000]
    rows = np.repeat(np.arange(len(counts)), counts)
    gradients = rng.standard_normal((len(rows), elements)).astype(np.float32)
    gradients[rng.random(gradients.shape) < 0.1] = -0.0
    weights = rng.standard_normal(len(rows)).astype(np.float32) if weighted else None
    _, found = sum_duplicates(*map(torch.from_numpy, (rows, np.arange(len(rows)), gradients)),
                              None if weights is None else torch.from_numpy(weights))
    expected = bag_sums(bits(gradients), counts, None if weights is None else bits(weights))
    assert (bits(found.numpy()) == expected).all(), f"seed {elements}"
