"""One batch on its way through forward and backward, part by part."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from ..optim.arithmetic import pool, sum_duplicates


class Step:
    """Gradients of one batch, staged, and their one update.

    Every part's loss is the mean over its samples times its share of the batch, so that the
    gradients of the parts add up to the whole batch's. A bag's gradient is staged in batch order.

    Parameters
    ----------
    model : nn.Module
    samples : Samples
    """

    def __init__(self, model, samples):
        self.model, self.samples = model, samples
        self.tables = (samples.ids if samples.lengths is None else samples.lengths).shape[1]
        self.lengths = torch.from_numpy(samples.bag_lengths)
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.dense = torch.from_numpy(samples.dense)
        self.label = torch.from_numpy(samples.label)
        self.logits = torch.empty(len(samples))
        self.gradients = None
        model.zero_grad()

    def run(self, part, storage, at, sums=None):
        """Forward and backward of some samples.

        Parameters
        ----------
        part : int64[k]
            Positions in the batch; none is allowed, and does nothing.
        storage : Rows
        at : int64[n]
            Where in the storage the row of each lookup of the batch is.
        sums : float32[bags, D], optional
            Added to every bag: what of it is not in the storage.
        """
        if not len(part):
            return
        bags = (part[:, None] * self.tables + torch.arange(self.tables)).ravel()
        lengths = self.lengths[bags]
        within = torch.arange(int(lengths.sum())) - torch.repeat_interleave(
            lengths.cumsum(0) - lengths, lengths)
        lookups = torch.repeat_interleave(self.starts[bags], lengths) + within
        pooled = pool(storage.weights, at[lookups], lengths)
        if sums is not None:
            pooled = pooled + sums[bags]
        pooled = pooled.view(len(part), self.tables, -1).requires_grad_()
        logits = self.model(self.dense[part], pooled)
        loss = binary_cross_entropy_with_logits(logits, self.label[part])
        (loss * (len(part) / len(self.samples))).backward()
        self.logits[part] = logits.detach()
        if self.gradients is None:
            self.gradients = torch.zeros(len(self.lengths), pooled.shape[2])
        self.gradients[bags] = pooled.grad.flatten(0, 1)

    def apply(self, optimizer, storage, at, chosen=slice(None)):
        """Update every row that the batch touched by the `chosen` lookups, and its state, in place.

        Parameters
        ----------
        optimizer : SGD or RowwiseAdagrad
        storage : Rows
        at : int64[n]
            Where in the storage the row of each lookup of the batch is.
        chosen : slice or bool[n]
        """
        bags = torch.repeat_interleave(torch.arange(len(self.lengths)), self.lengths)
        touched, sums = sum_duplicates(at[chosen], bags[chosen], self.gradients)
        weights, state = storage.read(touched)
        storage.write(touched, *optimizer.update(weights, sums, state))
