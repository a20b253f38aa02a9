"""Gradients of embedding rows, from backward to the optimizer's step."""

import torch

from ..memory.slot_memory import to_device
from .arithmetic import sum_duplicates


class StagedGradients:
    """Staged gradients of the rows of one group of tables.

    One backward sums duplicates of a row in lookup order; several backwards add up in their order.

    Attributes
    ----------
    rows : int64[u]
        Flat rows, ascending, in host memory.
    tensor : Tensor
        Its `grad` is float32[u, D], or None while nothing is staged: clipping, a gradient scaler
        and `zero_grad` work on it. The tensor has no values, and nobody can train, broadcast or
        average it as a parameter.
    """

    def __init__(self, dim, device="cpu"):
        self.tensor = torch.zeros(0, dim, requires_grad=True, device=device)
        self.rows = torch.empty(0, dtype=torch.int64)

    @property
    def values(self):
        return self.tensor.grad

    def add(self, rows, bags, gradients, weights=None):
        """Stage the gradients of one backward, by flat row; arguments as in `sum_duplicates`."""
        if not len(rows):
            return
        rows, sums = sum_duplicates(rows, bags, gradients, weights)
        if self.values is not None:
            before, rows_before = self.values, self.rows
            union = torch.unique(torch.cat((rows_before, rows)))
            total = before.new_zeros(len(union), before.shape[1])
            total[to_device(torch.searchsorted(union, rows_before), sums.device)] = before
            total[to_device(torch.searchsorted(union, rows), sums.device)] += sums
            rows, sums = union, total
        self.rows = rows
        set_gradient(self.tensor, sums)

    def rows_of(self, chosen):
        """Flat rows of the chosen gradients, bool[u]: int64[k]."""
        return self.rows[chosen]

    def clear(self):
        self.tensor.grad = None


class StagedBags:
    """Staged gradients of bags whose rows the card pooled, and which rows each bag has.

    Attributes
    ----------
    rows : int64[n]
        Flat row of each lookup.
    bags : int64[n]
        Row of `values` of each lookup.
    tensor : Tensor
        As in `StagedGradients`; its `grad` is float32[bags, D].
    """

    def __init__(self, dim):
        self.tensor = torch.zeros(0, dim, requires_grad=True)
        self.rows = self.bags = torch.empty(0, dtype=torch.int64)

    @property
    def values(self):
        return self.tensor.grad

    def add(self, rows, bags, gradients):
        """Stage the gradients float32[bags, D] of one backward for lookups int64[n]."""
        if not len(rows):
            return
        used, bags = torch.unique_consecutive(bags, return_inverse=True)
        gradients = gradients[used]
        if self.values is not None:
            rows = torch.cat((self.rows, rows))
            bags = torch.cat((self.bags, bags + len(self.values)))
            gradients = torch.cat((self.values, gradients))
        self.rows, self.bags = rows, bags
        set_gradient(self.tensor, gradients)

    def rows_of(self, chosen):
        """Flat rows in the chosen bags, bool[bags]: int64[k]."""
        return self.rows[chosen.cpu()[self.bags]]

    def clear(self):
        self.tensor.grad = None


def set_gradient(tensor, gradient):
    """Make a gradient of any number of rows the tensor's `grad`."""
    tensor.grad = None
    # PyTorch wants both to have one shape; an expanded scalar takes no memory.
    tensor.data = gradient.new_zeros(1, 1).expand(gradient.shape)
    tensor.grad = gradient
