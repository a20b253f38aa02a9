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

_MOST_PARTIALS, _PARTIAL_ELEMENTS = 16, 256  # of a bag, as in kernels/row_sums.hpp


class Stepping(Rule, Protocol):
    """What takes the step of rows: a rule of an optimizer, or an assignment."""

    rounding_seed: int | None


def pool(storage: Tensor, rows: Tensor, lengths: Tensor, weights: Tensor | None = None) -> Tensor:
    """Sum the rows of each bag in fp32, in the card's order; an empty bag gives zeros.

    Row j of a bag is added to partial sum j mod p, starting from +0. Then partial sums 0 and 1, 2
    and 3, ... are added, and these sums in the same way. p is 256 / D, rounded up to a power of two
    from 1 to 16.

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
    dim = storage.shape[1]
    partials = _partial_count(dim)
    if partials == 1 or not len(rows):
        return _sum_in_order(storage, rows, lengths, weights)
    count, device = len(rows), storage.device
    number = torch.arange(partials, device=device)
    parts = (lengths[:, None] - number + partials - 1).div(partials, rounding_mode="floor").clamp(0)
    bag = torch.repeat_interleave(
        torch.arange(len(lengths), device=device), lengths, output_size=count)
    place = torch.arange(count, device=device) - (lengths.cumsum(0) - lengths)[bag]
    first = (parts.view(-1).cumsum(0) - parts.view(-1)).view(parts.shape)
    order = torch.empty_like(place)
    order[first[bag, place % partials] + place // partials] = torch.arange(count, device=device)
    sums = _sum_in_order(storage, rows[order], parts.view(-1),
                         None if weights is None else weights[order]).view(len(lengths), -1, dim)
    there = lengths[:, None, None] > number[:, None]
    while sums.shape[1] > 1:
        sums = torch.where(there[:, 1::2], sums[:, ::2] + sums[:, 1::2], sums[:, ::2])
        there = there[:, ::2]
    return sums[:, 0]


def _partial_count(dim: int) -> int:
    count = 1
    while count < _MOST_PARTIALS and count * dim < _PARTIAL_ELEMENTS:
        count *= 2
    return count


def _sum_in_order(storage: Tensor, rows: Tensor, lengths: Tensor,
                  weights: Tensor | None = None) -> Tensor:
    """As `pool`, but one row after the other."""
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
    """Sum the gradients of each row, in lookup order, as `pool` sums the rows of a bag.

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
    bags = to_device(bags[order], there)
    if weights is not None:
        weights = weights[to_device(order, there)]
    sums = _sum_in_order(gradients, bags, to_device(counts, there), weights)
    # Two are one addition, without weights. Partial sums of all rows would take much memory.
    longer = counts > (2 if weights is None else 1)
    if _partial_count(gradients.shape[1]) > 1 and bool(longer.any()):
        lookups = to_device(torch.repeat_interleave(longer, counts).nonzero()[:, 0], there)
        sums[to_device(longer.nonzero()[:, 0], there)] = pool(
            gradients, bags[lookups], to_device(counts[longer], there),
            None if weights is None else weights[lookups])
    return unique, sums


def row_mean(values: Tensor) -> Tensor:
    """Mean of each row, float32[n, D] to float32[n].

    Each round adds columns 0 and 1, 2 and 3, ... and keeps an odd last column, until one column
    remains; then a true division by D.
    """
    width = values.shape[1]
    while values.shape[1] > 1:
        even = values.shape[1] // 2 * 2
        values = torch.cat((values[:, 0:even:2] + values[:, 1:even:2], values[:, even:]), dim=1)
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
