"""The trainer's arithmetic on embedding rows, fp32, written once.

Every operation is defined per row: its bits depend neither on the other rows of the call, nor on
the place of the row, nor on the number of threads.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from ...kernels.updating import Rule
from ..memory.slot_memory import to_device


class Stepping(Rule, Protocol):
    """What takes the step of rows: a rule of an optimizer, or an assignment."""

    rounding_seed: int | None


def pool(storage: Tensor, rows: Tensor, lengths: Tensor, weights: Tensor | None = None) -> Tensor:
    """Sum the rows of each bag in lookup order, in fp32; an empty bag gives zeros.

    Parameters
    ----------
    storage : [R, D]
    rows : int64[n]
        Row of each lookup, bag after bag.
    lengths : int64[bags]
    weights : float32[n], optional
        Of each lookup; products and sums are fused.

    Returns
    -------
    float32[bags, D]
    """
    if not len(rows):
        return torch.zeros(len(lengths), storage.shape[1], dtype=torch.float32,
                           device=storage.device)
    if not storage.is_contiguous() or storage.dtype != torch.float32:
        storage = storage[rows].float()
        rows = torch.arange(len(rows), device=storage.device)
    return embedding_bag(rows, storage, lengths.cumsum(0) - lengths, mode="sum",
                         per_sample_weights=weights)


def sum_duplicates(rows: Tensor, bags: Tensor, gradients: Tensor,
                   weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sum the gradients of each row in lookup order, stable.

    Parameters
    ----------
    rows : int64[n]
        Row of each lookup.
    bags : int64[n]
        Bag of each lookup.
    gradients : float32[bags, D]
        Of the loss with respect to each pooled bag, on any device.
    weights : float32[n], optional
        Of each lookup, on the same device.

    Returns
    -------
    unique : int64[u]
        Ascending.
    sums : float32[u, D]
        On the device of the gradients.
    """
    rows, order = torch.sort(rows, stable=True)
    unique, counts = torch.unique_consecutive(rows, return_counts=True)
    there = gradients.device
    if weights is not None:
        weights = weights[to_device(order, there)]
    return unique, pool(gradients, to_device(bags[order], there), to_device(counts, there), weights)


def row_mean(values: Tensor) -> Tensor:
    """Mean of each row, float32[n, D] to float32[n], by halving.

    Each round adds the upper half of the columns to the lower half and keeps an odd middle column,
    until one column remains; then a true division by D.
    """
    width = values.shape[1]
    while values.shape[1] > 1:
        half = values.shape[1] // 2
        folded = values[:, :half] + values[:, -half:]
        values = torch.cat((folded, values[:, half:-half]), dim=1)
    return values[:, 0] / width


def rounded_sqrt(values: Tensor) -> Tensor:
    """Square roots, fp32, rounded to nearest; those of `torch.sqrt` depend on the processor."""
    return values.double().sqrt().float()


def updated(rule: Stepping, weights: Tensor, state: Tensor | None, gradients: Tensor,
            finite: Tensor | None = None,
            keys: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Rows after one step of a rule: (weights, state), the weights in fp32 or rounded by the rule.

    Parameters
    ----------
    rule : Rule
    weights : [u, D]
    state : float32[u], float32[u, columns] or None
    gradients : float32[u, D]
    finite : bool[], optional
        False leaves all rows unchanged.
    keys : int64[u], optional
        Key of each row, which seeds stochastic rounding.
    """
    dtype, weights = weights.dtype, weights.float()
    after, state_after = rule.update(weights, gradients, state)
    if finite is not None:
        after = torch.where(finite, after, weights)
        if state is not None and state_after is not None:
            state_after = torch.where(finite, state_after, state)
    return rule.rounded(after, dtype, keys), state_after
