"""The trainer's arithmetic on embedding rows, fp32, written once.

Every operation is defined per row, so its bits do not depend on which rows are treated together,
on where a row is stored, or on the number of threads.
"""

import torch
from torch.nn.functional import embedding_bag


def pool(storage, rows, lengths):
    """Sum the rows of each bag in lookup order; an empty bag gives zeros.

    Parameters
    ----------
    storage : float32[R, D]
    rows : int64[n]
        Row of each lookup, bag after bag.
    lengths : int64[bags]

    Returns
    -------
    float32[bags, D]
    """
    if not len(rows):
        return storage.new_zeros(len(lengths), storage.shape[1])
    return embedding_bag(rows, storage, lengths.cumsum(0) - lengths, mode="sum")


def sum_duplicates(rows, bags, gradients):
    """Sum the gradients of each row in lookup order, stable.

    Parameters
    ----------
    rows : int64[n]
        Row of each lookup.
    bags : int64[n]
        Bag of each lookup.
    gradients : float32[bags, D]
        Of the loss with respect to each pooled bag.

    Returns
    -------
    unique : int64[u]
        Ascending.
    sums : float32[u, D]
    """
    rows, order = torch.sort(rows, stable=True)
    unique, counts = torch.unique_consecutive(rows, return_counts=True)
    return unique, pool(gradients, bags[order], counts)


def row_mean(values):
    """Mean of each row, float32[n, D] to float32[n], by halving.

    The upper half is added to the lower until one column is left (an odd middle column waits for
    the next round); then a true division by D.
    """
    width = values.shape[1]
    while values.shape[1] > 1:
        half = values.shape[1] // 2
        folded = values[:, :half] + values[:, -half:]
        values = torch.cat((folded, values[:, half:-half]), dim=1)
    return values[:, 0] / width


class SGD:
    """w = fma(-lr, g, w)."""

    name, state_bytes = "sgd", 0

    def __init__(self, lr):
        self.lr = lr

    def update(self, weights, gradients, state=None):
        """The rows after one step: (weights, state)."""
        return torch.add(weights, gradients, alpha=-self.lr), None


class RowwiseAdagrad:
    """s += mean(g * g), then w -= lr / (sqrt(s) + eps) * g; one fp32 of state per row.

    Parameters
    ----------
    lr : float
    eps : float
    initial : float
        Where the accumulator of a row starts. Far above zero on purpose: from zero the first step
        of a row has length lr whatever its gradient, so that a rounding of a small gradient would
        pass to the row undamped.
    """

    name, state_bytes = "rowwise_adagrad", 4
    default_eps, default_initial = 1e-8, 0.01

    def __init__(self, lr, eps=default_eps, initial=default_initial):
        self.lr, self.eps, self.initial = lr, eps, initial

    def update(self, weights, gradients, state):
        """The rows after one step: (weights, state)."""
        state = state + row_mean(gradients * gradients)
        factor = self.lr / (state.sqrt() + self.eps)
        return weights - factor[:, None] * gradients, state


OPTIMIZERS = {optimizer.name: optimizer for optimizer in (SGD, RowwiseAdagrad)}
