"""The plain reference: nn.EmbeddingBag and torch.optim, tables whole in memory."""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from ..optim.arithmetic import SGD
from .trainer import StepResult, Trainer


class ReferenceTrainer(Trainer):
    """A DLRM on one `nn.EmbeddingBag(mode="sum", sparse=True)` per table.

    The dense part trains with `torch.optim.SGD`; so do the tables with the optimizer "sgd".
    Row-wise Adagrad, which PyTorch lacks, is written out here. Gradients are coalesced before the
    update: adding hundreds of duplicates of a hot row to it one by one would round as often.
    """

    def __init__(self, model, tables, optimizer):
        super().__init__(model, tables, optimizer)
        views = [tables.table(number) for number in range(tables.count)]
        self.bags = nn.ModuleList(
            nn.EmbeddingBag.from_pretrained(weights, freeze=False, mode="sum", sparse=True)
            for weights, _ in views)
        self.states = [state for _, state in views]
        self.sparse_optimizer = torch.optim.SGD(self.bags.parameters(), optimizer.lr)

    def step(self, samples):
        pooled = [bag(*bags) for bag, bags in zip(self.bags, _columns(samples), strict=True)]
        logits = self.model(torch.from_numpy(samples.dense), torch.stack(pooled, dim=1))
        loss = binary_cross_entropy_with_logits(logits, torch.from_numpy(samples.label))
        self.model.zero_grad()
        self.bags.zero_grad()
        loss.backward()
        for bag in self.bags:
            bag.weight.grad = bag.weight.grad.coalesce()
        self.dense_optimizer.step()
        if isinstance(self.optimizer, SGD):
            self.sparse_optimizer.step()
        else:
            self._rowwise_adagrad()
        lookups = samples.ids.size
        return StepResult(logits.detach().numpy(), lookups, lookups, len(samples))

    def _rowwise_adagrad(self):
        with torch.no_grad():
            for bag, state in zip(self.bags, self.states, strict=True):
                rows, gradient = bag.weight.grad.indices()[0], bag.weight.grad.values()
                state[rows] += gradient.square().mean(dim=1)
                scale = state[rows].sqrt() + self.optimizer.eps
                bag.weight[rows] -= self.optimizer.lr / scale[:, None] * gradient


def _columns(samples):
    """(ids int64[n], offsets int64[B]) of each column, as nn.EmbeddingBag takes them."""
    if samples.lengths is None:
        offsets = torch.arange(len(samples))
        for column in samples.ids.T:
            yield torch.from_numpy(column.astype("int64")), offsets
        return
    column_of = samples.lookup_columns
    for column, lengths in enumerate(samples.lengths.T.astype("int64")):
        ids = samples.ids[column_of == column].astype("int64")
        yield torch.from_numpy(ids), torch.from_numpy(lengths.cumsum() - lengths)
