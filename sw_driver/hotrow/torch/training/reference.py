"""The plain reference: nn.EmbeddingBag and torch.optim on whole tables in memory."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from ...traces.trace import Samples
from ..memory.tables import EmbeddingTables
from ..optim.rules import RowwiseAdagrad, Rule
from .trainer import StepResult, Trainer


class ReferenceTrainer(Trainer):
    """A DLRM on one `nn.EmbeddingBag(mode="sum", sparse=True)` per table.

    `torch.optim.SGD` trains the dense part, and with "sgd" the tables, too. Row-wise Adagrad, which
    PyTorch lacks, is written out here. Gradients are coalesced before the update: adding hundreds
    of duplicates to a hot row one by one would round as often.
    """

    def __init__(self, model: nn.Module, tables: EmbeddingTables, optimizer: Rule):
        super().__init__(model, tables, optimizer)
        views = [tables.table(number) for number in range(tables.count)]
        self.bags = [
            nn.EmbeddingBag.from_pretrained(weights, freeze=False, mode="sum", sparse=True)
            for weights, _ in views]
        self.states = [state for _, state in views]
        self.sparse_optimizer = torch.optim.SGD([bag.weight for bag in self.bags], optimizer.lr)

    def step(self, samples: Samples) -> StepResult:
        pooled = [bag(*bags) for bag, bags in zip(self.bags, _columns(samples), strict=True)]
        logits = self.model(torch.from_numpy(samples.dense), torch.stack(pooled, dim=1))
        loss = binary_cross_entropy_with_logits(logits, torch.from_numpy(samples.label))
        self.model.zero_grad()
        self.sparse_optimizer.zero_grad()
        loss.backward()
        for bag in self.bags:
            assert bag.weight.grad is not None, "every table is looked up"
            bag.weight.grad = bag.weight.grad.coalesce()
        self.dense_optimizer.step()
        if isinstance(self.optimizer, RowwiseAdagrad):
            for bag, state in zip(self.bags, self.states, strict=True):
                _rowwise_adagrad(bag.weight, state, self.optimizer)
        else:
            self.sparse_optimizer.step()
        lookups = samples.ids.size
        return StepResult(logits.detach().numpy(), lookups, None)


@torch.no_grad()
def _rowwise_adagrad(weight: torch.Tensor, state: torch.Tensor | None,
                     rule: RowwiseAdagrad) -> None:
    assert weight.grad is not None and state is not None
    rows, gradient = weight.grad.indices()[0], weight.grad.values()
    state[rows] += gradient.square().mean(dim=1)
    scale = state[rows].sqrt() + rule.eps
    weight[rows] -= rule.lr / scale[:, None] * gradient


def _columns(samples: Samples) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
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
