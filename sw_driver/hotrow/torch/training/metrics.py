"""Figures of merit of predicted clicks."""

import numpy as np
from numpy.typing import ArrayLike


def auc(label: ArrayLike, score: ArrayLike) -> float | None:
    """Area under the ROC curve, by ranks; tied scores share their mean rank.

    Parameters
    ----------
    label : array[n] of 0 and 1
    score : array[n]

    Returns
    -------
    float or None
        None if there is only one class, because then the curve does not exist.
    """
    label = np.asarray(label) > 0.5
    positive = np.count_nonzero(label)
    negative = len(label) - positive
    if not positive or not negative:
        return None
    _, group, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[group]
    above = rank[label].sum() - positive * (positive + 1) / 2
    return float(above / (positive * negative))


def log_loss(label: ArrayLike, logit: ArrayLike) -> float:
    """Mean negative log-likelihood of 0/1 labels, from logits: float."""
    label, logit = np.asarray(label, np.float64), np.asarray(logit, np.float64)
    return float(np.mean(np.logaddexp(0.0, logit) - label * logit))
