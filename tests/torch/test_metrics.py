import numpy as np
import pytest
from hotrow.torch.training.metrics import auc, log_loss


def auc_by_pairs(label, score):
    """The definition: how often a positive is above a negative, ties counting half."""
    pairs = score[label == 1][:, None] - score[label == 0]
    return np.mean((pairs > 0) + 0.5 * (pairs == 0))


@pytest.mark.parametrize("levels", [3, 20, 10**6], ids=["many-ties", "ties", "no-ties"])
@pytest.mark.parametrize("seed", range(3))
def test_auc_is_the_share_of_ordered_pairs(seed, levels):
    rng = np.random.default_rng(seed)
    label = (rng.random(300) < 0.2).astype(np.float32)
    score = rng.integers(levels, size=300) / levels + 0.3 * label
    score = np.round(score * levels).astype(np.float32)
    assert auc(label, score) == pytest.approx(auc_by_pairs(label, score), abs=1e-12)


def test_auc_of_clear_cases():
    label = np.array([0, 0, 1, 1], np.float32)
    assert auc(label, np.array([1.0, 2.0, 3.0, 4.0])) == 1.0
    assert auc(label, np.array([4.0, 3.0, 2.0, 1.0])) == 0.0
    assert auc(label, np.zeros(4)) == 0.5


@pytest.mark.parametrize("label", [0, 1])
def test_auc_needs_both_classes(label):
    assert auc(np.full(5, label), np.arange(5)) is None


def test_log_loss_is_the_mean_negative_log_likelihood():
    rng = np.random.default_rng(4)
    logit, label = rng.standard_normal(100), (rng.random(100) < 0.5).astype(np.float32)
    probability = 1 / (1 + np.exp(-logit))
    expected = -np.mean(np.where(label == 1, np.log(probability), np.log(1 - probability)))
    assert log_loss(label, logit) == pytest.approx(expected, rel=1e-12)


def test_log_loss_of_certain_predictions_is_finite():
    assert log_loss([1, 0], [1000.0, -1000.0]) == 0.0
    assert log_loss([0, 1], [1000.0, -1000.0]) == 1000.0
