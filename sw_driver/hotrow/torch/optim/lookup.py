"""Forward and backward of lookups: bags pooled from rows, gradients staged for rows."""

import torch

from ..memory.slot_memory import to_device
from .arithmetic import pool


class Lookup:
    """One segment of a batch on its way through forward and backward.

    Parameters
    ----------
    segment : Segment
    located : LocatedRows
        The segment's rows in the store.
    divisor : float32[bags, 1] or None
        Divisor of each bag's sum.
    staged, staged_bags : StagedGradients, StagedBags or None
        Of the segment's group; bags if the card pools rows.
    pooled : bool
        Whether bags are pooled; otherwise each lookup returns its row.

    Attributes
    ----------
    done : bool
        Whether backward has run.
    """

    def __init__(self, segment, located, divisor, staged, pooled=True, staged_bags=None):
        self.segment, self.located, self.divisor = segment, located, divisor
        self.staged, self.pooled, self.staged_bags = staged, pooled, staged_bags
        self.done = False

    def pool(self, weights):
        """The segment's result, and the rows that the gradient of `weights` needs.

        Returns
        -------
        (float32[bags, D] or, unpooled, float32[n, D]; float32[n, D] or None)
        """
        located = self.located
        with located.lock:
            stored, device = located.rows.weights, located.rows.weights.device
            at = to_device(located.at, device)
            if not self.pooled:
                return stored[at].float(), None
            pooled = pool(stored, at, to_device(self.segment.lengths, device), weights)
            rows = None
            if weights is not None and weights.requires_grad:
                rows = stored[at].float()
        if located.sums is not None:
            pooled = pooled + to_device(located.sums, device)
        return (pooled if self.divisor is None else pooled / to_device(self.divisor, device)), rows

    def stage(self, gradients, weights, rows):
        """Stage the gradients of `pool`'s result; return the gradient of the weights, or None."""
        if self.divisor is not None:
            gradients = gradients / to_device(self.divisor, gradients.device)
        flat, lengths, cold = self.segment.flat, self.segment.lengths, self.located.cold
        bags = torch.arange(len(flat)) if not self.pooled else (
            torch.repeat_interleave(torch.arange(len(lengths)), lengths))
        if cold is not None:
            self.staged_bags.add(flat[cold], bags[cold], gradients)
            self.staged.add(flat[~cold], bags[~cold], gradients)
        else:
            self.staged.add(flat, bags, gradients, weights)
        self.done = True
        return None if rows is None else (
            gradients[to_device(bags, gradients.device)] * rows).sum(1)


class PooledLookup(torch.autograd.Function):
    """`Lookup` as a node of autograd's graph."""

    @staticmethod
    def forward(ctx, anchor, weights, lookup):
        """Run `lookup.pool(weights)`; `anchor` requires a gradient, so that backward runs."""
        ctx.lookup = lookup
        ctx.set_materialize_grads(False)
        pooled, rows = lookup.pool(weights)
        ctx.save_for_backward(weights, rows)
        return pooled

    @staticmethod
    def backward(ctx, gradients):
        weights, rows = ctx.saved_tensors
        if gradients is None:
            ctx.lookup.done = True
            return None, None, None
        return None, ctx.lookup.stage(gradients.contiguous(), weights, rows), None
